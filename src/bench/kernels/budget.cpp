#include "bench/kernels/budget.hpp"

#include <algorithm>
#include <numeric>
#include <vector>

namespace gradmeter::bench {

TimeShare share_out(core::Seconds rest, std::span<const double> least) {
  if (least.empty() || !(rest.value > 0)) return {.skip = true};
  const double all = std::accumulate(least.begin(), least.end(), 0.0);
  const double fair = rest.value / static_cast<double>(least.size());
  // Predictions of long ones may be wrong by as much again: they must leave time for the many short ones.
  const double room = least.front() > fair ? rest.value / 2 : rest.value;
  if (all <= room) return {.seconds = least.front() + (rest.value - all) / static_cast<double>(least.size())};
  std::vector<double> sorted(least.begin(), least.end());
  std::ranges::sort(sorted);
  double sum = 0;
  for (const double one : sorted) {
    sum += one;
    if (sum > room) break;
    if (one >= least.front()) return {.seconds = least.front()};
  }
  return {.skip = true};
}

void Slowness::learn(const std::string& kind, double ratio) {
  constexpr double weight = 0.25;  // of the newest: shapes differ
  double& mean = ratios_.emplace(kind, guess_).first->second;
  mean += weight * (ratio - mean);
}

double Slowness::of(const std::string& kind) const {
  const auto it = ratios_.find(kind);
  return it == ratios_.end() ? guess_ : it->second;
}

}  // namespace gradmeter::bench
