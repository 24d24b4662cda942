// SPDX-License-Identifier: Apache-2.0
// Charts as declarative specifications. Each chart is a file of charts/, which also says for which rows the chart is
// drawn. The page draws it in a browser; `write_pictures` draws the same specification without a browser.
#pragma once
#include <array>
#include <cstddef>
#include <filesystem>
#include <limits>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/embedded.hpp"
#include "core/json.hpp"
#include "report/page/rows.hpp"

namespace gradmeter::report {

/// Okabe and Ito's colours, which colour-blind people can tell apart. Brown replaces yellow, which is hard to see on
/// white.
inline constexpr std::array palette{"#0072B2", "#D55E00", "#009E73", "#CC79A7",
                                    "#E69F00", "#56B4E9", "#5D4A00", "#000000"};

/// The files charts/*.json by name.
std::span<const core::EmbeddedFile> chart_files();
/// The page's parts by name without extension (frame, style, labels, fit, page), and `library`, the JavaScript that
/// draws charts (empty in a build without vl-convert).
std::span<const core::EmbeddedFile> page_files();
std::string_view page_file(std::string_view name);
/// Replaces each {{name}} by its part. A part that was filled in is not searched for further names.
std::string fill(std::string_view frame, const std::map<std::string, std::string>& parts);

/// The smallest and the largest number of something that a chart accepts.
struct Bounds {
  std::size_t least = 0, most = std::numeric_limits<std::size_t>::max();
  bool contains(std::size_t count) const { return least <= count && count <= most; }
};

/// A Vega-Lite specification (v6) over the data set "points", and the rows that it is drawn for. The file of a chart
/// must have spec, title, about (one sentence that says how to read the chart), experiments, needs (columns that a row
/// must have), along, and order (the chart's place on the page). It may have least, values, series, doubtful, curves,
/// spans and labels. A chart shows the `series` and the `panel` of a row (PageRow), and the factors of `along`.
/// With `labels`, the chart shows the name of each series after the series' last point, moved up where two names would
/// overlap. `labels` is an object with the names of the columns x, y and top (the upper end of an error bar; default:
/// y), and log (true: the y axis is logarithmic).
struct Chart {
  std::string name, title, about;
  std::vector<std::string> experiments, needs;
  /// Columns of time spans that the chart draws; the chart's data have a row for each span.
  std::vector<std::string> spans;
  std::vector<std::string> along;       ///< factors: the first is on the axis, the others in the panels' names
  std::map<std::string, double> least;  ///< by column: the least value that a row must have
  Bounds values;  ///< accepted number of values on the axis (first factor of `along`) in a series of a panel
  Bounds series;  ///< accepted number of series in a panel
  int order = 0;
  bool curves = false;    ///< true: the axis is the number of ranks; the chart also draws the table's curve_starts
  bool doubtful = false;  ///< mistrusted rows are drawn too, with a mark
  core::Json spec;
  std::vector<std::size_t> rows, starts;  ///< the chart's rows, as indices of the table's rows and of curve_starts
};

/// The charts that have at least one row, in the order of the page. Each series has a colour of `palette`, the same one
/// in all charts of the page.
std::vector<Chart> charts_for(const PageTable&);

/// The data of a chart that a page needs, as JSON: {"name", "along", "spans", "spec", "rows", "starts"}. Rows and
/// starts are written as ranges [begin, end, begin, end, …].
core::Json to_json(const Chart&);

// Charts as pictures without a browser: vl-convert draws the same specifications in a Python process.

/// Writes a file NAME.FORMAT to the folder for every chart of `charts_for`, and returns the files' paths. The format is
/// png or svg. The environment variable `GRADMETER_CHARTS_PYTHON` names a Python that has vl_convert; default: the
/// Python that gradmeter was configured with. Errors: UsageError where this Python or its vl_convert is missing;
/// BackendError where a picture could not be drawn or written.
std::vector<std::filesystem::path> write_pictures(const PageTable&, const std::filesystem::path& folder,
                                                  std::string_view format);

}  // namespace gradmeter::report
