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

/// The text of findings and comparisons, for a person.
struct ReportText {
  /// For each experiment of each side the first three findings of each kind, and how many more there are; the
  /// experiment's name stands before them where there are several. After them come the counts of the comparisons.
  std::vector<std::string> sentences;
  std::string next;  ///< the command that the first finding with one advises; empty: none
};
/// `findings`: the findings of each side.
ReportText summarise_findings(std::span<const analysis::Side>, std::span<const std::vector<analysis::Finding>> findings,
                              std::span<const analysis::Comparison>);

/// A figure with its name and interval: "84 %", "efficiency on 8 ranks", "82–86".
struct HeadlineFigure {
  std::string value, what, interval = {};
};

struct Headline {
  std::vector<HeadlineFigure> figures;  ///< at most three
  std::string of;                       ///< the one point whose figures they are, in words
};

/// Makes figures of one point, which `of` names, because figures of several points would describe none of them. For a
/// scaling it is the point with the most samples/s among those at the most ranks that are not in doubt and share the
/// network and conditions that the file has first. For other experiments it is the point that answers their question:
/// the fastest exchange of the largest buffer, the kernel with the most arithmetic a second, the slowest link, the
/// fastest forward pass, the highest accuracy. Empty where no point has figures.
Headline headline(const PageTable&);

/// Writes a page with findings, charts, a table to sort and filter, the points that were skipped with their reasons,
/// and the machines. It works from disk without a network. Names and texts of result files are shown as text, whatever
/// is in them.
void write_html_page(const PageTable&, const ReportText&, std::span<const analysis::Side>, std::ostream&);

/// Markdown for a pull request: the findings as a list, the result of the sides' comparisons, and for each experiment a
/// table of its varying factors and its main figures. Long tables are cut, and say so.
std::string markdown(const PageTable&, const ReportText&);

}  // namespace gradmeter::report
