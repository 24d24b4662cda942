// SPDX-License-Identifier: Apache-2.0
// Writes the schedule of a point as a file for network simulators, for --goal.
#pragma once
#include <functional>
#include <span>
#include <string>

#include "bench/allreduce/plan.hpp"

namespace gradmeter::bench {

/// The largest number of ranks for which a file is written.
inline constexpr int most_goal_ranks = 65536;
struct GoalFile {
  std::string path;
  double reduce_bytes_per_s = 0;  ///< rate of the sums; 0, by convention: they take no time
  bool replaces = false;          ///< true: an existing file is replaced
};
/// Writes the schedule that all points share, with the message sizes used between nodes. First prints the upper bound
/// of the file's size. pending: is called between pieces, and returns the signal that is to end the program, or 0;
/// after a signal the unfinished file is removed. Errors: UsageError for points that run several schedules, none of our
/// schedules, or a codec, and for a file that exists and is not to be replaced; BackendError where it cannot be
/// written; Interrupted.
void write_goal_file(const GoalFile&, std::span<const CollectivePoint>, const NodeMap&,
                     const std::function<int()>& pending);

}  // namespace gradmeter::bench
