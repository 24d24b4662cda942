// SPDX-License-Identifier: Apache-2.0
// The comparison of two sides that were launched several times each: the ratio of their points with its 95 % interval,
// and a verdict. A launch is the replicate: the job's placement, memory layout and neighbours affect all samples of a
// launch alike, so its samples are not independent.
#pragma once
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "analysis/launches.hpp"

namespace gradmeter::analysis {

/// The ratio of the sides' geometric means, exp(mean log b − mean log a), with its 95 % interval, and the p-value of
/// the hypothesis that it is 1. The method is Welch's (Biometrika 34, 1947), which does not assume equal spreads. With
/// fewer than two launches on a side only the ratio is known; the interval and the p-value are NaN. They are NaN too if
/// the launches of each side agree in all digits but the two sides differ, since the spread between launches is then
/// not known. All values must be positive.
struct RatioEstimate {
  Estimate ratio;
  double p_value = std::numeric_limits<double>::quiet_NaN();
};
/// Errors: UsageError for an empty side and for a value that is not positive and finite.
RatioEstimate estimate_ratio(std::span<const double> a, std::span<const double> b);

/// exp(mean log); equal values are returned as they are. Errors: those of `estimate_ratio`.
double geometric_mean(std::span<const double> values);

/// The geometric mean of a side's launches with its 95 % interval: Student's t of the logarithms. Errors: those of
/// `estimate_ratio`, and for a single launch.
Estimate launch_interval(std::span<const double> values);

/// Adjusts p-values for their number (Benjamini & Hochberg, J. R. Stat. Soc. B 57(1), 1995): rejecting those that are
/// then at most 0.05 keeps the expected share of false rejections at 5 %. NaN does not count and stays NaN. Cost: O(n
/// log n).
std::vector<double> adjust_p_values(std::span<const double> p_values);

/// `launches_to_decide` gives the number of launches of each side after which the 95 % interval would exclude 1 or lie
/// within `tolerance` around 1, if ratio and spread stay the same. By convention it gives 0 for more than
/// `most_launches`, or if no spread is known.
inline constexpr std::int64_t most_launches = 1000;
std::int64_t launches_to_decide(std::span<const double> a, std::span<const double> b, double tolerance);

enum class Verdict : std::uint8_t { slower, faster, undecided, same, missing };
std::string_view name(Verdict);

struct ComparedPoint {
  std::string key;
  core::Point last_point;    ///< the second side's point in its last launch; if it has none, the first side's
  std::vector<double> a, b;  ///< the metric's median in each launch, of the first side and of the second
  /// Ratio of rates: above 1 the second side is better. The interval is NaN if the point is undecided for a `reason`.
  Estimate ratio;
  double p_value = std::numeric_limits<double>::quiet_NaN();  ///< p-value of the hypothesis that the ratio is 1
  double q_value = 0;                                         ///< the p-value adjusted for the number of points
  Verdict verdict = Verdict::missing;
  std::int64_t launches_needed = 0;  ///< needed on each side; 0: decided, not known, or over `most_launches`
  std::string reason;                ///< why the point is missing or undecided; else empty
  /// launches of the first and of the second side whose values are not used, and why
  std::string left_out_of_first, left_out_of_second;
  bool oversubscribed = false, disturbed = false;  ///< true if they are true of a launch of either side
};

struct Comparison {
  std::string a_name, b_name;
  PointSelection selection;
  std::vector<ComparedPoint> points;  ///< by importance: slower, faster, undecided, same, missing
  std::size_t count(Verdict) const;
};

/// faster, slower: the 95 % interval excludes 1, and the test, adjusted for all points, rejects that the ratio is 1
/// (q ≤ 0.05). same: the interval lies within 1/(1+tolerance) to 1+tolerance. missing: a side has no positive number.
/// All other points are undecided. A point is always undecided if its launches on one side come from several machines,
/// builds or conditions, since these differ by more than launches do. It is also undecided if it is zero or less in
/// some launch: there it has no ratio, and a comparison of the other launches alone would be biased. Errors: UsageError
/// if no point is on both sides (it names the factors in which the sides differ), and for predicted points.
Comparison compare(const Side& a, const Side& b, const PointSelection&, double tolerance);

/// The reason why a point's ratio is not shown to be at least `bar`: the 95 % interval lies below the bar, contains it
/// or is unknown, the point is missing or undecided for a reason, or the second side has a launch that failed or is not
/// trusted. Empty: none of these; the whole interval is at or above the bar.
std::optional<std::string> why_below(const ComparedPoint&, double bar);

}  // namespace gradmeter::analysis
