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

/// A figure, its name, and its interval or other small print: "84 %", "efficiency on 8 ranks", "82–86".
struct HeadlineFigure {
  std::string value, what, interval = {};
};

struct Headline {
  std::vector<HeadlineFigure> figures;  ///< at most three
  std::string of;                       ///< the point that all figures belong to, in words
};

/// The figures of a single point, which `of` names: figures of several points would describe none of them. The point is
/// one with status ok, of the first of these experiments that has figures:
///  - scale: the most samples/s (else efficiency) of the first model at the most ranks, among points with an exchange
///    and an efficiency;
///  - allreduce: the fastest call at the most ranks with the largest buffer;
///  - train: the highest accuracy of the first model;
///  - kernels: the most FLOP/s;
///  - infer: the most samples/s of the first model;
///  - links: the slowest link for the largest one-way message.
/// In scale, allreduce and links, only candidates of one panel (PageRow) count: the panel of the first candidate that
/// is not in doubt or, if all are in doubt, of the first. A point in doubt is chosen only if all are in doubt; its
/// figures then end with " ?", and the name of the first figure says why. Empty if no point has figures.
Headline headline(const PageTable&);

/// Writes a page with findings, charts, a table to sort and filter, skipped points with their reasons, and the
/// machines. The page works from disk without a network. Names and texts of result files are shown as text, whatever
/// they contain.
void write_html_page(const PageTable&, const ReportText&, std::span<const analysis::Side>, std::ostream&);

/// Markdown for a pull request: the sentences of ReportText as a list, and for each experiment a table of its varying
/// factors and its main figures. A table that was shortened says how many rows are left out.
std::string markdown(const PageTable&, const ReportText&);

}  // namespace gradmeter::report
