// SPDX-License-Identifier: Apache-2.0
// Medians and quantiles, which assume no normal distribution. No headline result is a mean (Hoefler & Belli, SC15).
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

/// The reason why sampling ended; every result row states it.
enum class Stop { none, interval, samples, budget, interrupted };
std::string_view name(Stop);

/// A summary of n samples, all in the samples' unit. With fewer than 6 samples no 95 % interval of the median exists,
/// and ci95_low and ci95_high are NaN (null in the result file).
struct Summary {
  double median = 0, q1 = 0, q3 = 0, ci95_low = 0, ci95_high = 0, p95 = 0, p99 = 0, min = 0, max = 0;
  std::size_t n = 0;
  Stop stop = Stop::none;
  /// Half the width of the 95 % interval as a share of the median; infinity if there is no interval.
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

// Quantiles by linear interpolation between order statistics (R's type 7). Errors: UsageError if there is no sample.

/// Cost: O(n log n). Errors: UsageError also if a sample is not finite.
Summary summarise(std::span<const double> samples);
double median(std::span<const double> samples);
/// q in [0, 1]. Cost: O(1).
double quantile(std::span<const double> sorted, double q);

/// The indices (from 0, inclusive) of the two sorted samples between which the median lies with at least 95 %
/// confidence. They follow from the binomial distribution (n, 1/2), without a normal approximation. Empty for n < 6,
/// when even the smallest and the largest sample give less confidence.
std::optional<std::pair<std::size_t, std::size_t>> median_interval_indices(std::size_t n);

/// The median of a block for use in intervals. `median_interval_indices` requires values that lie above and below the
/// median of the samples' distribution equally often. The middle one of an odd number of samples is such a value. The
/// mean of the middle two of an even number is not: it lies above more often, since times are skewed. So the last
/// sample of an even number is left out.
/// Errors: UsageError if there is no sample, or one is not finite. Cost: O(n log n).
double block_median(std::span<const double> block);

/// Samples grouped by the blocks in which they were taken. Samples of one block share the state of the machine. A 95 %
/// interval that treats all samples as independent is far too narrow: when 20 points were measured twice, 8 had
/// intervals that did not overlap. So the interval is computed from the medians of the blocks, which are spread over
/// the run.
class Blocks {
 public:
  /// Errors: UsageError when a sample is not finite. An empty block is ignored.
  void add(std::span<const double> block);
  std::size_t count() const { return medians_.size(); }
  std::span<const double> samples() const { return samples_; }
  std::span<const double> block(std::size_t) const;
  std::span<const double> medians() const { return medians_; }  ///< the `block_median` of each block

 private:
  std::vector<double> samples_, medians_;
  std::vector<std::size_t> ends_;  ///< end of each block in samples_
};
/// The 95 % interval of a time reaches at least this share of the median to each side. The addresses of code and data
/// are random, but fixed during a launch. So blocks of one launch differ less than launches do (results/truth.md, "Over
/// launches"), and one launch cannot measure how much launches differ.
inline constexpr double least_interval_share = 0.01;
/// Summarises all samples, with the same weight for each block. The 95 % interval is that of the blocks' medians,
/// widened if it does not reach `least_interval_share` of the median to each side.
Summary summarise(const Blocks&);

/// The fewest blocks whose medians have a 95 % interval. With fewer blocks, a measured time has no interval.
inline constexpr std::size_t fewest_blocks = 6;

}  // namespace gradmeter::core
