#include "dataparallel/optimizer.hpp"

namespace gradmeter::dataparallel {

void Optimizer::update(runtime::Queue& queue, runtime::Buffer weights, runtime::ConstBuffer change, std::size_t offset,
                       UpdateStep step) {
  runtime::Cost rest = cost(weights.count());
  if (shares()) {
    const runtime::Cost first = measure_cost(weights.count());
    queue.submit("update.norms", first, [=, this] { measure(weights, change, offset, step); });
    queue.synchronise();
    share();
    rest = {.flops = rest.flops - first.flops, .bytes = rest.bytes - first.bytes};
  }
  queue.submit("update", rest, [=, this] { apply(weights, change, offset, step); });
}

}  // namespace gradmeter::dataparallel
