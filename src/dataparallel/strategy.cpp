#include "dataparallel/strategy.hpp"

#include <algorithm>

namespace gradmeter::dataparallel {

void Worker::update(std::size_t offset, std::size_t count, UpdateStep step) {
  compute("update", optimizer_.cost(count),
          [&] { optimizer_.apply(buffers_.parameters.part(offset, count), gradients(offset, count), offset, step); });
}

void Strategy::begin(Worker& w) {
  if (w.ranks() > 1) w.fabric().wait(w.fabric().broadcast(w.axis(), w.parameters(), 0));
}

void Strategy::judged(Worker& w, Buffer to) {
  std::ranges::copy(w.parameters().values<float>(), to.values<float>().begin());
}

}  // namespace gradmeter::dataparallel
