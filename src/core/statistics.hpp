// Rank-based statistics: no assumption of normality, no mean as a headline (Hoefler & Belli, SC15).
#pragma once
#include <array>
#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "core/units.hpp"

namespace gradmeter::core {

/// Why sampling ended; every row has it.
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

/// Each number of a summary by its key in a result line, in the order of the line.
struct Statistic {
  std::string_view key;
  double Summary::*value;
};
inline constexpr std::array statistics{Statistic{"median", &Summary::median},
                                       Statistic{"q1", &Summary::q1},
                                       Statistic{"q3", &Summary::q3},
                                       Statistic{"ci95_low", &Summary::ci95_low},
                                       Statistic{"ci95_high", &Summary::ci95_high},
                                       Statistic{"p95", &Summary::p95},
                                       Statistic{"p99", &Summary::p99},
                                       Statistic{"min", &Summary::min},
                                       Statistic{"max", &Summary::max}};

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

/// Samples in the blocks that they were taken in. Samples of one block share the state that the machine was in, so an
/// interval that supposes them independent is far too narrow: of 20 pairs of equal points 8 had disjoint ones. The
/// medians of blocks that are spread over the run are what an interval may be made from.
class Blocks {
 public:
  /// Errors: UsageError when a sample is not finite. An empty block is none.
  void add(std::span<const double> block);
  std::size_t count() const { return medians_.size(); }
  std::span<const double> samples() const { return samples_; }
  std::span<const double> block(std::size_t) const;
  std::span<const double> medians() const { return medians_; }

 private:
  std::vector<double> samples_, medians_;
  std::vector<std::size_t> ends_;  ///< of each block in samples_
};
/// Quantiles of one distribution, in which each block weighs the same. The interval is that of the blocks' medians.
Summary summarise(const Blocks&);

/// Fewer blocks have no 95 % interval of their median, and a time without its interval is half a number.
inline constexpr std::size_t fewest_blocks = 6;
/// Of samples that take so long that an interval is not worth the wait: over 5 s, three suffice.
std::size_t fewest_blocks_of(Seconds sample);

/// At least so many samples and blocks, spread over at least `min_time`; then until the interval's half width is under
/// `relative_half_width` of the median, or the budget or the sample limit ends it. The budget never ends it before the
/// 6 blocks that an interval needs, or the 3 of samples over 5 s.
struct StoppingRule {
  std::size_t min_samples = 10;
  std::size_t min_blocks = 8;
  Seconds min_time{0.3};  ///< from the first block's begin to the last one's end
  std::size_t max_samples = 100000;
  double relative_half_width = 0.025;
  Seconds budget{5};
  /// Stop::none while sampling should go on. spread: as `min_time`; spent: what the budget is for.
  Stop decide(const Blocks&, Seconds spread, Seconds spent) const;
};

}  // namespace gradmeter::core
