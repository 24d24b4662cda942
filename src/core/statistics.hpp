// Rank-based statistics: no assumption of normality, no mean as a headline (Hoefler & Belli, SC15).
#pragma once
#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "core/units.hpp"

namespace gradmeter::core {

/// Why sampling ended; it stands on every row.
enum class Stop { none, interval, samples, budget, interrupted };
std::string_view name(Stop);

/// Of n samples, all in the samples' unit. With fewer than 6 samples no 95 % interval of the median exists:
/// ci95_low/high are then NaN (null in the result file).
struct Summary {
  double median = 0, q1 = 0, q3 = 0, ci95_low = 0, ci95_high = 0, p95 = 0, p99 = 0, min = 0, max = 0;
  std::size_t n = 0;
  Stop stop = Stop::none;
  /// Half the interval's width as a share of the median; infinity where there is no interval.
  double relative_half_width() const;
};

/// Quantiles by linear interpolation between order statistics (R's type 7).
/// Cost: O(n log n). Errors: UsageError when empty or when a sample is not finite.
Summary summarise(std::span<const double> samples);
double quantile(std::span<const double> sorted, double q);
double median(std::span<const double> samples);

/// Ranks (0-based, inclusive) of the order statistics that bound the median with at least 95 % confidence, from the
/// binomial distribution (n, 1/2): exact, no normal approximation. {0, n-1} never claims more than it has: `exists`
/// is false for n < 6.
struct MedianInterval {
  std::size_t low, high;
  bool exists;
};
MedianInterval median_interval_ranks(std::size_t n);

/// At least `min_samples`, then until the interval's half width is under `relative_half_width` of the median, or the
/// budget or the sample limit ends it; the budget never before the 6 samples that an interval needs.
struct StoppingRule {
  std::size_t min_samples = 10;
  std::size_t max_samples = 100000;
  double relative_half_width = 0.025;
  Seconds budget{5};
  /// Stop::none while sampling should go on.
  Stop decide(std::span<const double> samples, Seconds elapsed) const;
};

/// Two-sided Mann-Whitney rank test with tie correction: exact for small samples without ties, else normal.
struct RankTest {
  double u, p_value;
};
RankTest mann_whitney(std::span<const double> a, std::span<const double> b);

}  // namespace gradmeter::core
