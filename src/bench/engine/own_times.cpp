#include "bench/engine/own_times.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace gradmeter::bench {

std::vector<OwnTime> own_times_by_rank(const runtime::Communicator& c, const core::Blocks& mine) {
  OwnTime t{.median = 0, .low = 0, .high = std::numeric_limits<double>::infinity()};
  if (mine.count() > 0) {
    const auto s = core::summarise(mine);
    t.median = s.median;
    if (std::isfinite(s.ci95_low)) t.low = s.ci95_low, t.high = s.ci95_high;
  }
  return c.gather_value(t);
}

std::optional<int> straggler(std::span<const double> medians) {
  std::vector<OwnTime> exact;
  exact.reserve(medians.size());
  for (const double m : medians) exact.push_back({m, m, m});
  return straggler(exact);
}

std::optional<int> straggler(std::span<const OwnTime> ranks) {
  constexpr double noticeable = 1.1;
  if (ranks.size() < 2) return std::nullopt;
  std::vector<OwnTime> sorted(ranks.begin(), ranks.end());
  const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>((sorted.size() - 1) / 2);
  std::ranges::nth_element(sorted, middle, {}, &OwnTime::median);
  const auto slowest = std::ranges::max_element(ranks, {}, &OwnTime::median);
  if (!(slowest->median > noticeable * middle->median) || !(slowest->low > middle->high)) return std::nullopt;
  return static_cast<int>(slowest - ranks.begin());
}

void fill_slowest(int rank, const std::string& host, core::Metrics& m) {
  m[core::Metric::slowest_rank] = static_cast<std::int64_t>(rank);
  m[core::Metric::slowest_host] = host;
}

}  // namespace gradmeter::bench
