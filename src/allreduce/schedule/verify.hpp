// Proves a schedule right by playing it over fingerprints: each rank ends with each contribution exactly once, no
// message is lost, mismatched or awaited for ever, and all ranks have the same summation tree (so: equal bits).
#pragma once
#include <string>

#include "allreduce/schedule/play.hpp"
#include "allreduce/schedule/schedule.hpp"

namespace gradmeter::allreduce {

struct ScheduleVerdict {
  std::string fault;      ///< empty: right
  bool same_bits = true;  ///< every rank's value of a block was summed in the same tree
  CountedCost cost;
  bool ok() const { return fault.empty(); }
};

/// Cost: O(steps) time, O(ranks × blocks) memory; a ring of 1024 ranks takes under a second.
ScheduleVerdict verify(const Schedule&);

}  // namespace gradmeter::allreduce
