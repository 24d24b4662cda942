// SPDX-License-Identifier: Apache-2.0
// Writes the schedule of a point as a file for network simulators in the format GOAL (allreduce/schedule/goal.hpp), for
// --goal.
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
  double reduce_bytes_per_s = 0;  ///< rate at which a rank adds up received bytes; by convention 0: sums take no time
  bool replaces = false;          ///< true: an existing file is replaced
};
/// Writes the one schedule that all points share. Its messages are at most 1 MiB long, as is usual, whatever the
/// points' transports are. First prints an upper bound of the file's size. pending: called between pieces of the file;
/// returns the signal that is to end the program, or 0. After a signal the unfinished file is removed.
/// Errors: UsageError if the points differ in collective, algorithm, size, element type or root, if their algorithm has
/// no schedule of gradmeter's own or does not serve these ranks, if they have a codec, or if the file exists and is not
/// to be replaced; BackendError if it cannot be written; Interrupted.
void write_goal_file(const GoalFile&, std::span<const CollectivePoint>, const NodeMap&,
                     const std::function<int()>& pending);

}  // namespace gradmeter::bench
