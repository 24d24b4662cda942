// SPDX-License-Identifier: Apache-2.0
// The output of `compare`: tables, a verdict in a sentence, CSV and JUnit.
#pragma once
#include <span>
#include <string>

#include "analysis/comparison.hpp"
#include "analysis/findings.hpp"
#include "core/table.hpp"
#include "report/cells.hpp"

namespace gradmeter::report {

/// The counts in one line: "42 points: 3 slower, 1 faster, 38 same".
std::string comparison_summary(const analysis::Comparison&);
/// The verdict on all points. A ratio is the second side's rate ÷ the first side's. The sentence says how many points
/// are slower, names the one with the lowest ratio, and gives that point's geometric mean on each side; then it says
/// the same of the faster points and the highest ratio. If no point is slower or faster, it says that no difference is
/// shown. The figures are the counts of points by verdict, and the ratios "most_slower" and "most_faster". The
/// finding's `experiment` is empty if the points are of several experiments.
analysis::Finding comparison_verdict(const analysis::Comparison&);
/// A table: first the factors that have one value in all points, then a row for each of the first `most` points of the
/// comparison, which is sorted by importance.
std::string comparison_table(const analysis::Comparison&, std::size_t most, std::size_t width = core::any_width);
/// The point's experiment, and its values of the factors that vary in the comparison, as text.
std::string comparison_label(const analysis::Comparison&, const analysis::ComparedPoint&);
std::string comparison_legend(double tolerance, Legend);
/// CSV of all points, one a line.
std::string comparison_csv(const analysis::Comparison&);

/// JUnit's XML: a suite for each comparison, a case for each point, and a failure for each point whose ratio may be
/// below `bar` (analysis::why_below).
std::string comparison_junit(std::span<const analysis::Comparison>, double bar);

}  // namespace gradmeter::report
