// Charts as declarative specifications: each is one file of charts/, which says itself when it applies. The same
// specification is drawn in the page and, by `draw`, without a browser.
#pragma once
#include <array>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.hpp"
#include "report/page/rows.hpp"

namespace gradmeter::report {

/// Okabe and Ito's colours, which colour-blind people tell apart; yellow gives way to brown on a white ground.
inline constexpr std::array palette{"#0072B2", "#D55E00", "#009E73", "#CC79A7",
                                    "#E69F00", "#56B4E9", "#5D4A00", "#000000"};

struct EmbeddedFile {
  std::string_view name, text;
};
/// charts/*.json by name.
std::span<const EmbeddedFile> chart_files();
/// The page's frame.html, style.css and page.js by name, and `library`, which draws.
std::span<const EmbeddedFile> page_files();

/// A Vega-Lite specification (v6) over the data set "points". Its file has beside it: title, about (one sentence that
/// says how to read it), experiment, needs (columns that a row must have to be in it), `order` on the page,
/// `curves` and `spans`.
struct Chart {
  std::string name, title, about;
  std::vector<std::string> experiments, needs;
  std::vector<std::string> spans;  ///< columns of spans that it draws: its data have a row for each span
  int order = 0;
  bool curves = false;  ///< over ranks: takes the table's curve_starts too
  core::Json spec;
  /// Whether a row is in the chart.
  bool takes(const core::Json& row) const;
};

/// In the order of the page; only those that have a row.
std::vector<Chart> charts_for(const RowTable&);

/// What a page or a drawing needs: {"name", "title", "about", "experiments", "needs", "spec"}.
core::Json to_json(const Chart&);

}  // namespace gradmeter::report
