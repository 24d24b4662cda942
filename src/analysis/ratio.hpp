// The ratio of two sides that were launched several times each. A launch is the replicate: what a job's placement,
// memory layout and neighbours do to a time is the same for all samples of a launch, so its samples are not
// independent.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace gradmeter::analysis {

/// exp(mean log b − mean log a) with its interval and the p-value of the ratio 1, after Welch (Biometrika 34, 1947): no
/// equal spreads are assumed. With fewer than two launches on a side there is a ratio, and NaN for all else.
struct RatioEstimate {
  double ratio;
  double ci95_low, ci95_high;
  double p_value;
};
/// All values positive. Errors: UsageError for an empty side and for a value that is not positive and finite. The ratio
/// is that of the sides' geometric means.
RatioEstimate estimate_ratio(std::span<const double> a, std::span<const double> b);

/// exp(mean log), the figure of a side whose quotient is the ratio. Errors: as of `estimate_ratio`.
double geometric_mean(std::span<const double> values);

/// The 95 % interval of a side's own typical value: Student's t of the logarithms. Two launches at least, all positive.
struct LaunchInterval {
  double low, high;
};
LaunchInterval launch_interval(std::span<const double> values);

/// p-values adjusted for their number (Benjamini & Hochberg, J. R. Stat. Soc. B 57(1), 1995): rejecting those of at
/// most 0.05 keeps the expected share of false ones at 5 %. NaN is none of them and stays NaN. Cost: O(n log n).
std::vector<double> adjust_p_values(std::span<const double> p_values);

/// Launches of each side after which the 95 % interval would exclude 1 or lie within `tolerance` around it, if ratio
/// and spread stay what they are; 0 where that takes more than `most_launches`, or where no spread is known.
inline constexpr std::int64_t most_launches = 1000;
std::int64_t launches_to_decide(std::span<const double> a, std::span<const double> b, double tolerance);

}  // namespace gradmeter::analysis
