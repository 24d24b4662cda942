// How far values lie apart, whatever a few of them are.
#pragma once
#include <algorithm>
#include <cmath>
#include <vector>

#include "core/statistics.hpp"

namespace gradmeter::analysis {

/// The median of how far values are from what is expected of them, scaled to the standard deviation of a normal
/// distribution (1.4826 times the median absolute deviation), but at least `floor`: machines are not steadier.
/// Errors: UsageError when empty.
inline double robust_deviation(std::vector<double> off, double floor) {
  for (double& x : off) x = std::fabs(x);
  return std::max(1.4826 * core::median(off), floor);
}

}  // namespace gradmeter::analysis
