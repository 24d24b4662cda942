// SPDX-License-Identifier: Apache-2.0
// Measurements in turn, and what is printed of them; for benchmark programs.
#pragma once
#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "core/format.hpp"
#include "core/statistics.hpp"

namespace gradmeter::measurement {

/// Of a set of samples: the median, with the interval that holds it with 95 % confidence, and the least.
struct Timing {
  double median, low, high, best;
};
inline Timing timing(std::vector<double> samples) {
  const double median = core::median(samples);
  std::ranges::sort(samples);
  const auto [low, high] =
      core::median_interval_indices(samples.size()).value_or(std::pair{std::size_t{0}, samples.size() - 1});
  return {median, samples[low], samples[high], samples.front()};
}

/// `measure(i)` for each i below `count`, in so many rounds, the order turned round after each; the first only warms.
template <class Measure>
std::vector<std::vector<double>> in_turn(std::size_t count, std::size_t rounds, const Measure& measure) {
  std::vector<std::vector<double>> samples(count);
  std::vector<std::size_t> order(count);
  std::iota(order.begin(), order.end(), std::size_t{0});
  for (std::size_t round = 0; round <= rounds; ++round, std::ranges::reverse(order))
    for (const std::size_t i : order) {
      const double took = measure(i);
      if (round > 0) samples[i].push_back(took);
    }
  return samples;
}

/// a[i] / b[i] of each round.
inline std::vector<double> ratios(const std::vector<double>& a, const std::vector<double>& b) {
  std::vector<double> out;
  std::ranges::transform(a, b, std::back_inserter(out), std::divides<>{});
  return out;
}

}  // namespace gradmeter::measurement
