#include "dataparallel/part_sums.hpp"

#include <algorithm>
#include <cstring>
#include <stdexcept>

namespace gradmeter::dataparallel {

GroupSums::GroupSums(Fabric& fabric, Group group, std::size_t most)
    : fabric_(fabric), group_(group), words_(fabric.memory(gathered_floats(fabric.size(group), most))) {}

std::size_t GroupSums::memory_bytes(int ranks, std::size_t most) {
  return gathered_floats(ranks, most) * sizeof(float) + memory_page_bytes;
}

Forecast GroupSums::predict(const ForecastInput& s, std::size_t values) {
  return forecast_collective(s, allreduce::CollectiveKind::all_gather,
                             gathered_floats(static_cast<int>(s.ranks), values));
}

void GroupSums::sum(std::span<double> values) {
  const int ranks = fabric_.size(group_);
  const std::size_t own = 2 * values.size(), all = gathered_floats(ranks, values.size());
  if (all > words_.count()) throw std::logic_error("more norms are to be summed than there is memory for");
  if (ranks == 1 || values.empty()) return;
  const Buffer words = words_.part(0, all);
  const std::size_t at = own * static_cast<std::size_t>(fabric_.rank(group_));
  fabric_.at_once([&] { std::memcpy(&words.values<float>()[at], values.data(), values.size_bytes()); });
  fabric_.wait(fabric_.all_gather(group_, words));
  std::ranges::fill(values, 0.0);
  fabric_.at_once([&] {
    const std::span<const float> gathered = words.values<float>();
    for (std::size_t from = 0; from < all; from += own) {
      for (std::size_t i = 0; i < values.size(); ++i) {
        double part = 0;
        std::memcpy(&part, &gathered[from + 2 * i], sizeof part);
        values[i] += part;
      }
    }
  });
}

}  // namespace gradmeter::dataparallel
