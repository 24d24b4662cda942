// Two sides, point by point: the ratio with its interval over launches, and what may be said of it.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "analysis/launches.hpp"
#include "analysis/ratio.hpp"

namespace gradmeter::analysis {

enum class Verdict : std::uint8_t { slower, faster, undecided, same, missing };
std::string_view name(Verdict);

struct ComparedPoint {
  std::string key;
  core::Point sample;
  std::vector<double> a, b;  ///< medians of launches
  RatioEstimate ratio{};     ///< of rates: above 1 the second side is better
  double q_value = 0;        ///< the p-value adjusted for the number of points
  Verdict verdict = Verdict::missing;
  std::int64_t launches_needed = 0;  ///< of each side; 0: not known, or over `most_launches`
  std::string reason;                ///< why missing or undecided
  std::string left_out;              ///< launches of the second side that are in no number, and why
};

struct Comparison {
  std::string a_name, b_name;
  Selection selection;
  std::vector<ComparedPoint> points;  ///< those that matter first: slower, faster, undecided, same, missing
  std::size_t count(Verdict) const;
};

/// faster, slower: the 95 % interval excludes 1, and so does the test adjusted for all points (q ≤ 0.05).
/// same: the interval lies within 1/(1+tolerance) to 1+tolerance. missing: a side has no number. Else undecided, and so
/// is a point where the launches of one side are of several machines or builds: their spread is not that of launches.
/// Errors: UsageError where no point is on both sides, with the factors in which the sides differ.
Comparison compare(const Side& a, const Side& b, const Selection&, double tolerance);

/// The points that do not pass a bar on the ratio: below it, undecided about it, missing, or with a launch on the
/// second side that went wrong or is not trusted, however fast the others were. Empty: the bar is met.
struct BarFailure {
  const ComparedPoint* point;
  std::string why;
};
std::vector<BarFailure> below_bar(const Comparison&, double bar);
/// Why a point does not pass; none where it does.
std::optional<std::string> why_below(const ComparedPoint&, double bar);

}  // namespace gradmeter::analysis
