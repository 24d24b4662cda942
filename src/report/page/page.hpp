// SPDX-License-Identifier: Apache-2.0
// One self-contained HTML page of results, and findings and tables as Markdown.
#pragma once
#include <iosfwd>
#include <span>
#include <string>
#include <vector>

#include "analysis/comparison.hpp"
#include "analysis/findings.hpp"
#include "report/page/rows.hpp"

namespace gradmeter::report {

/// The findings and comparisons as sentences, for a person.
struct ReportText {
  /// For each side: the first three findings of each kind in each experiment, and how many findings are left out. With
  /// several sides, each of these sentences begins with the side's name. Then for each comparison: the number of points
  /// with each verdict (slower, faster, same …), and a sentence on the whole.
  std::vector<std::string> sentences;
  std::string next;  ///< the command advised by the first finding that advises one; empty: no finding does
};
/// `findings`: the findings of each side.
ReportText summarise_findings(std::span<const analysis::Side>, std::span<const std::vector<analysis::Finding>> findings,
                              std::span<const analysis::Comparison>);

/// A figure, its name and its interval: "84 %", "efficiency on 8 ranks", "82–86".
struct HeadlineFigure {
  std::string value, what, interval = {};
};

struct Headline {
  std::vector<HeadlineFigure> figures;  ///< at most three
  std::string of;                       ///< the point that all figures belong to, in words
};

/// The figures of a single point, which `of` names: figures of several points would describe none of them. For `scale`,
/// the candidates are the points of the file's first model that exchange gradients, have an efficiency, and have the
/// most ranks. If one of them is not in doubt, only candidates in the panel (PageRow) of the first such point remain,
/// else those in the panel of the first candidate. Of these, the point with the most samples/s is chosen, a point in
/// doubt only if all are in doubt. For other experiments, it is the point that answers their question: the fastest
/// exchange of the largest buffer at the most ranks, the kernel with the most arithmetic a second, the slowest link of
/// the largest message in one direction, the forward pass of the first model with the most samples/s, the first model's
/// highest accuracy. The figures of a point in doubt end with " ?", and the name of the first one says why. Empty if no
/// point has figures.
Headline headline(const PageTable&);

/// Writes a page with findings, charts, a table to sort and filter, skipped points with their reasons, and the
/// machines. It works from disk without a network. Names and texts of result files are shown as text, whatever they
/// contain.
void write_html_page(const PageTable&, const ReportText&, std::span<const analysis::Side>, std::ostream&);

/// Markdown for a pull request: the findings as a list, the result of the comparisons, and for each experiment a table
/// of its varying factors and its main figures. A table that was shortened says so.
std::string markdown(const PageTable&, const ReportText&);

}  // namespace gradmeter::report
