// Runs a schedule on numbers, all ranks in one place: the ground truth for the executor, and what the virtual-time
// fabric moves its data with. Same sums in the same order as the executor, so: equal bits.
#pragma once
#include <span>
#include <vector>

#include "allreduce/reduce.hpp"
#include "allreduce/schedule/schedule.hpp"
#include "allreduce/schedule/slices.hpp"

namespace gradmeter::allreduce {

/// buffers[r] is rank r's, in place; all of one length. Bytes sent by each rank are returned.
/// Cost: O(elements moved). Errors: std::logic_error when the schedule is not sound.
std::vector<std::uint64_t> interpret(const Schedule&, std::span<const std::span<float>> buffers, Op);

/// Slice by slice as the executor cuts and runs them: slice s by schedule s mod count. Where ranks own blocks it must
/// be one slice. Errors: std::logic_error also for several of those.
std::vector<std::uint64_t> interpret(std::span<const SchedulePtr>, const Slices&,
                                     std::span<const std::span<float>> buffers, Op);

}  // namespace gradmeter::allreduce
