// SPDX-License-Identifier: Apache-2.0
// Interval arithmetic, which finds what overlapped. Times from a first start to a last end would count gaps as work.
#pragma once
#include <span>
#include <vector>

namespace gradmeter::dataparallel {

/// [begin, end) in seconds of one clock.
struct Interval {
  double begin = 0, end = 0;
  double length() const { return end > begin ? end - begin : 0; }
};

/// The intervals sorted and made disjoint, without empty ones. Cost: O(n log n).
std::vector<Interval> unite(std::span<const Interval>);
/// The length of united intervals.
double total(std::span<const Interval> united);
/// The parts of `a` that are not in `b`; both are united.
std::vector<Interval> subtract(std::span<const Interval> a, std::span<const Interval> b);

}  // namespace gradmeter::dataparallel
