#include "dataparallel/optimizer.hpp"

namespace gradmeter::dataparallel {

void Optimizer::update(model::Computer& computer, runtime::Buffer weights, runtime::ConstBuffer change,
                       std::size_t offset, UpdateStep step) {
  model::Cost rest = cost(weights.count());
  if (shares()) {
    const model::Cost first = measure_cost(weights.count());
    computer.compute("update.norms", first, [&] { measure(weights, change, offset, step); });
    share();
    rest = {.flops = rest.flops - first.flops, .bytes = rest.bytes - first.bytes};
  }
  computer.compute("update", rest, [&] { apply(weights, change, offset, step); });
}

}  // namespace gradmeter::dataparallel
