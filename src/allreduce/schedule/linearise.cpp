#include "allreduce/schedule/linearise.hpp"

#include <algorithm>

namespace gradmeter::allreduce {

std::vector<Turn> linearise(std::span<const SchedulePtr> schedules, std::size_t slices, std::size_t depth) {
  const auto rounds_of = [&](std::size_t slice) { return schedules[slice % schedules.size()]->rounds(); };
  std::vector<std::size_t> first, end;  // by slice: the wave of its first round, and the one after its last
  std::size_t waves = 0;
  for (std::size_t i = 0; i < slices; ++i) {
    first.push_back(std::max(i / schedules.size(), i < depth ? 0 : end[i - depth]));
    end.push_back(first[i] + rounds_of(i));
    waves = std::max(waves, end[i]);
  }
  std::vector<Turn> turns;
  for (std::size_t wave = 0, done = 0; wave < waves; ++wave) {
    for (std::size_t i = done; i < slices && first[i] <= wave; ++i) {
      if (wave < end[i]) turns.push_back({static_cast<std::uint32_t>(i), static_cast<std::uint32_t>(wave - first[i])});
    }
    while (done < slices && end[done] <= wave + 1) ++done;
  }
  return turns;
}

}  // namespace gradmeter::allreduce
