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

core::Blocks slowest_blocks(const runtime::Communicator& c, const core::Blocks& mine, std::vector<double>& medians) {
  medians = c.gather_value(core::summarise(mine).median);
  const auto slowest = c.broadcast_value(static_cast<int>(std::ranges::max_element(medians) - medians.begin()));
  core::Blocks all;
  for (std::size_t i = 0; i < mine.count(); ++i) {
    std::vector<double> block(mine.block(i).begin(), mine.block(i).end());
    c.broadcast(std::span<double>(block), slowest);
    all.add(block);
  }
  return all;
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

void fill_medians(std::span<const double> medians, const std::function<std::string(int rank)>& host_of,
                  core::Metrics& m) {
  if (medians.empty()) return;
  const auto [least, most] = std::ranges::minmax(medians);
  if (least > 0) m[core::Metric::ranks_spread] = most / least;
  if (const auto late = straggler(medians)) fill_slowest(*late, host_of(*late), m);
}

void fill_slowest(int rank, const std::string& host, core::Metrics& m) {
  m[core::Metric::slowest_rank] = static_cast<std::int64_t>(rank);
  m[core::Metric::slowest_host] = host;
}

}  // namespace gradmeter::bench
