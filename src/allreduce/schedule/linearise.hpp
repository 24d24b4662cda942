// The static order of a sliced collective: which round of which slice comes when, the same on every rank. For whoever
// cannot poll: streams, groups of messages without tags, recorded graphs, the cost model.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "allreduce/schedule/schedule.hpp"

namespace gradmeter::allreduce {

/// One round of one slice: its sends and receives go together, as one group.
struct Turn {
  std::uint32_t slice, round;
  bool operator==(const Turn&) const = default;
};

/// Slice s runs schedule s mod count, and begins after slice s - depth has ended: no more than `depth` are under way.
/// Slices of one schedule follow each other one round apart; those of different schedules go side by side. Ranks that
/// take the turns in this order, leaving out those in which they have no step, do not deadlock, and messages between
/// two ranks match without tags. Cost: O(slices · rounds).
std::vector<Turn> linearise(std::span<const SchedulePtr>, std::size_t slices, std::size_t depth);

}  // namespace gradmeter::allreduce
