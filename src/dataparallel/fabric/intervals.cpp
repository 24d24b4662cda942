// SPDX-License-Identifier: Apache-2.0
#include "dataparallel/fabric/intervals.hpp"

#include <algorithm>

namespace gradmeter::dataparallel {

std::vector<Interval> unite(std::span<const Interval> intervals) {
  std::vector<Interval> sorted(intervals.begin(), intervals.end());
  std::erase_if(sorted, [](const Interval& i) { return i.length() == 0; });
  std::sort(sorted.begin(), sorted.end(), [](const Interval& a, const Interval& b) { return a.begin < b.begin; });
  std::vector<Interval> out;
  for (const Interval& i : sorted) {
    if (!out.empty() && i.begin <= out.back().end) {
      out.back().end = std::max(out.back().end, i.end);
    } else {
      out.push_back(i);
    }
  }
  return out;
}

double total(std::span<const Interval> united) {
  double sum = 0;
  for (const Interval& i : united) sum += i.length();
  return sum;
}

std::vector<Interval> subtract(std::span<const Interval> a, std::span<const Interval> b) {
  std::vector<Interval> out;
  std::size_t j = 0;
  for (const Interval& i : a) {
    double from = i.begin;
    while (j < b.size() && b[j].end <= i.begin) ++j;
    for (std::size_t k = j; k < b.size() && b[k].begin < i.end; ++k) {
      if (b[k].begin > from) out.push_back({from, b[k].begin});
      from = std::max(from, b[k].end);
    }
    if (from < i.end) out.push_back({from, i.end});
  }
  return out;
}

}  // namespace gradmeter::dataparallel
