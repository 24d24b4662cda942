#include "bench/own_times.hpp"

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
  return c.all_gather_value(t);
}

std::optional<int> standing_out(std::span<const OwnTime> ranks) {
  if (ranks.size() < 2) return std::nullopt;
  const auto slowest = std::ranges::max_element(ranks, {}, &OwnTime::low);
  for (auto other = ranks.begin(); other != ranks.end(); ++other) {
    if (other != slowest && other->high >= slowest->low) return std::nullopt;
  }
  return static_cast<int>(slowest - ranks.begin());
}

}  // namespace gradmeter::bench
