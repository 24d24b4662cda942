// SPDX-License-Identifier: Apache-2.0
// Writes the schedule of a point as a file for network simulators, for --goal.
#pragma once
#include <functional>
#include <span>
#include <string>

#include "bench/allreduce/plan.hpp"

namespace gradmeter::bench {

/// The largest number of ranks of such a file.
inline constexpr int most_goal_ranks = 65536;
struct GoalFile {
  std::string path;
  double reduce_bytes_per_s = 0;  ///< rate of the sums; 0: they take no time
  bool replaces = false;          ///< an existing file
};
/// Writes the one schedule that all points run, in messages as between nodes, and prints before how large the file
/// becomes at most. pending: asked between pieces, gives the signal that is to end the program, or 0; the unfinished
/// file is then removed. Errors: UsageError for points that run several schedules, none of ours, or with a codec, and
/// for a file that exists; BackendError where it cannot be written; Interrupted.
void write_goal_file(const GoalFile&, std::span<const CollectivePoint>, const NodeMap&,
                     const std::function<int()>& pending);

}  // namespace gradmeter::bench
