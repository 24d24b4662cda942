// SPDX-License-Identifier: Apache-2.0
// Rank-based statistics: they assume no normal distribution, and no headline is a mean (Hoefler & Belli, SC15).
#pragma once
#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "core/units.hpp"

namespace gradmeter::core {

/// The reason why sampling ended; every row has it.
enum class Stop { none, interval, samples, budget, interrupted };
std::string_view name(Stop);

/// A summary of n samples, all in the samples' unit. With fewer than 6 samples no 95 % interval of the median exists:
/// ci95_low/high are then NaN (null in the result file).
struct Summary {
  double median = 0, q1 = 0, q3 = 0, ci95_low = 0, ci95_high = 0, p95 = 0, p99 = 0, min = 0, max = 0;
  std::size_t n = 0;
  Stop stop = Stop::none;
  /// Half the interval's width as a share of the median; infinity where there is no interval.
  double relative_half_width() const;
};

/// One number of a summary, with its key in a result line. `statistics` lists all of them in the order of the line.
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

/// Ranks (0-based, inclusive) of the two order statistics that bound the median with at least 95 % confidence, from the
/// binomial distribution (n, 1/2): exact, no normal approximation. None for n < 6, where even the smallest and the
/// largest sample bound it with less.
std::optional<std::pair<std::size_t, std::size_t>> median_interval_ranks(std::size_t n);

/// Samples grouped by the blocks in which they were taken. Samples of one block share the state of the machine, so an
/// interval that assumes them independent is far too narrow: of 20 pairs of equal points, 8 had disjoint intervals. The
/// interval is therefore computed from the medians of blocks that are spread over the run.
class Blocks {
 public:
  /// Errors: UsageError when a sample is not finite. An empty block is ignored.
  void add(std::span<const double> block);
  std::size_t count() const { return medians_.size(); }
  std::span<const double> samples() const { return samples_; }
  std::span<const double> block(std::size_t) const;
  std::span<const double> medians() const { return medians_; }

 private:
  std::vector<double> samples_, medians_;
  std::vector<std::size_t> ends_;  ///< end of each block in samples_
};
/// Each block weighs the same. The interval is that of the blocks' medians, and at least 1 % of the median to each
/// side.
Summary summarise(const Blocks&);

/// With fewer blocks the median has no 95 % interval, and a time is not complete without one.
inline constexpr std::size_t fewest_blocks = 6;
/// Returns 3 if a sample takes over 5 s, because an interval is then not worth the wait; otherwise `fewest_blocks`.
std::size_t fewest_blocks_of(Seconds sample);

/// Sampling takes at least `min_samples` samples and `min_blocks` blocks, spread over at least `min_time`. Then it goes
/// on until half the interval's width is under `relative_half_width` of the median, or the budget or the sample limit
/// ends it. The budget never ends it before the 6 blocks that an interval needs, or the 3 blocks for samples over 5 s.
struct StoppingRule {
  std::size_t min_samples = 10;
  std::size_t min_blocks = 8;
  Seconds min_time{0.3};  ///< from the first block's begin to the last one's end
  std::size_t max_samples = 100000;
  double relative_half_width = 0.025;
  Seconds budget{5};
  /// Returns Stop::none while sampling should go on. spread, spent: the times to compare with `min_time` and `budget`.
  Stop decide(const Blocks&, Seconds spread, Seconds spent) const;
};

}  // namespace gradmeter::core
