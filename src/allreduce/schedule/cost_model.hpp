// SPDX-License-Identifier: Apache-2.0
// Predicts when each rank finishes a schedule on links of given latency and bandwidth.
#pragma once
#include <span>
#include <vector>

#include "allreduce/schedule/schedule.hpp"
#include "allreduce/schedule/slices.hpp"
#include "core/machine.hpp"

namespace gradmeter::allreduce {

/// Returns the time at which each rank is done [s], where rank r begins at begin[r] [s]. A message of n bytes takes
/// latency + n/bandwidth of its link; a rank sends one message at a time and receives one at a time, and nodes' ports
/// and the trunk are shared (`core::LinksInUse`). A reduction reads its bytes at core::Machine::reduce_bytes_per_s.
/// Slice s runs schedule s mod schedules.size(), on one of `lanes_for` lanes, and begins when the slice before it on
/// its lane is done. On a rank, a round of a slice begins when the slice's previous round is done there; its messages
/// wait for the links, and its reductions for the rank's core. world_ranks: the ranks' numbers on the machine; empty:
/// 0, 1, 2, …
/// Cost: O(steps · slices). Source: Hockney, Parallel Computing 1994.
std::vector<double> hockney_finish_times(std::span<const SchedulePtr>, const Slices&, std::size_t element_bytes,
                                         const std::vector<double>& begin, const core::Machine&,
                                         std::span<const int> world_ranks = {});

}  // namespace gradmeter::allreduce
