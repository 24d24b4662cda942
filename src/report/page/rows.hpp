// Points as rows of one wide table: what charts, the page's table and data for other programs are made from.
#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/comparison.hpp"
#include "core/json.hpp"
#include "core/result_file.hpp"

namespace gradmeter::report {

/// A row is an object: experiment, status, reason, source (index of the side), launches, and each factor and metric
/// that is not null by its own key. A summary gives its median by the key, and `KEY_ci95_low`, `KEY_ci95_high`. Spans
/// are a list of objects. Numbers have six digits. Further keys are
///  - `series` and `panel`, which together name in words all factors in which the experiment's rows differ, the side,
///    the machine and the build: "ring, 4-bit gradients" what was chosen, "mlp:784-64-10, 1gbe" the conditions. Not
///    named are ranks, batches, sizes and what follows from the ranks, as a number of nodes may: charts have them on an
///    axis or in a panel's name;
///  - `batch`: "batch 16", which a curve over ranks keeps; of strong scaling that of all ranks, "batch 64 in all";
///  - `side`, `machine`, `build`: the words of these in `series` and `panel`, where they differ;
///  - `doubt`: why the figure is not to be relied on; absent where nothing is known against it;
///  - `fp32_speedup` and its interval: samples/s, divided by those of one rank in fp32 with all else equal;
///  - `codec_gain` of rows with a codec whose point was also measured without: how many times shorter they take, with
///    its interval, and `series_over_links`, `panel_over_links`, which do not name the link and what belongs to it.
struct RowTable {
  std::vector<core::Json> rows;
  /// Copies of points of one rank, for the curves that begin there: on one rank an exchange's factors do not apply.
  std::vector<core::Json> curve_starts;
  std::vector<std::string> varying;  ///< factors in which rows of one experiment differ
};

/// merged: launches of one source, machine and build that measured the same point are one row, with the median of each
/// number over launches, the 95 % interval over launches of what has one, and `launches`. separate: a row for each
/// point.
enum class Launches { merged, separate };
RowTable make_rows(std::span<const analysis::Side>, Launches = Launches::merged);

/// Gives sides the names of their files without folder and extension; with the folder where two files have one name.
void name_by_label(std::span<analysis::Side>);

/// A row of experiment "compare" for each point that both sides have: point (its label), ratio, verdict, q_value.
void add_comparison(RowTable&, const analysis::Comparison&);

/// {"columns": [...], "rows": [[...], ...]}: a third of the bytes of objects.
core::Json compact(const RowTable&);

/// What a person reads as the name of a column, in the words of the charts: "mini-batch of a rank" of batch_per_rank.
/// A time or a rate has its unit.
std::string column_words(std::string_view key);

/// All rows as CSV with every column that any row has, but for spans.
std::string rows_csv(const RowTable&);

}  // namespace gradmeter::report
