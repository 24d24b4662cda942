// SPDX-License-Identifier: Apache-2.0
// Arithmetic on sets of time intervals, to find what overlapped. (Taking the time from the first begin to the last end
// would count gaps as work.)
#pragma once
#include <span>
#include <vector>

namespace gradmeter::dataparallel {

/// [begin, end) in seconds of one clock.
struct Interval {
  double begin = 0, end = 0;
  double length() const { return end > begin ? end - begin : 0; }
};

/// The union of the intervals, as sorted, disjoint intervals that are not empty. Cost: O(n log n).
std::vector<Interval> unite(std::span<const Interval>);
/// The sum of the lengths of united intervals.
double total(std::span<const Interval> united);
/// The parts of `a` that are not in `b`. Both must be sorted and disjoint.
std::vector<Interval> subtract(std::span<const Interval> a, std::span<const Interval> b);

}  // namespace gradmeter::dataparallel
