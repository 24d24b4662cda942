// SPDX-License-Identifier: Apache-2.0
// Points as rows of one wide table, from which charts, the page's table and data for other programs are made.
#pragma once
#include <functional>
#include <iosfwd>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "analysis/comparison.hpp"
#include "core/json.hpp"
#include "core/result.hpp"
#include "core/result_file.hpp"

namespace gradmeter::report {

/// A point, with further facts that the page shows of it. Its columns are experiment, status, reason, source (index of
/// the side), and each factor and metric that is not null, by its own key. A metric that is a summary (core::Summary)
/// gives its median under its key, and the ends of its interval as `KEY_ci95_low` and `KEY_ci95_high`. Numbers are
/// shown with six digits; those that are not finite are left out. Further columns are
///  - `launches`: the number of launches over which the row's medians were taken;
///  - `series`, which names what was chosen ("ring, 4-bit gradients"), and `panel`, which names the conditions
///    ("mlp:784-64-10, 1gbe"). Together they name in words all factors in which the experiment's rows differ, and side,
///    machine and build if rows differ in these. Ranks, batches, sizes and factors that follow from the ranks are left
///    out, since charts have them on an axis or in a panel's name;
///  - `batch`: the batch that stays the same along a curve over ranks: "batch 16" means 16 samples on each rank, and
///    "batch 64 in all" (strong scaling) 64 samples on all ranks together;
///  - `side`, `machine`, `build`: present if rows differ in them, in the same words as in `series` and `panel`;
///  - `doubt`: why the figure is not to be relied on; absent where nothing is known against it;
///  - `fp32_speedup` and its interval: samples/s, divided by those of one rank in fp32 with all else equal;
///  - `codec_gain`, for a row with a codec whose point was also measured without a codec: the time without the codec
///    divided by the time with it, and the interval of this ratio;
///  - `series_over_links` and `panel_over_links`, for rows with `codec_gain`: `series` and `panel` without the link and
///    the factors that change with it.
class PageRow {
 public:
  explicit PageRow(core::Point of = {}) : point(std::move(of)) {}
  core::Point point;

  /// Sets the value of a column; does nothing for null. `column` must be a literal, since the row keeps only a view of
  /// it.
  void put(std::string_view column, core::Value);
  /// Does nothing for a number that is not finite.
  void put_number(std::string_view column, double);
  /// Adds a column that comes before the factors.
  void put_first(std::string_view column, core::Value);
  /// The value of a column; null where the row lacks it.
  core::Value at(std::string_view column) const;
  bool has(std::string_view column) const;
  /// The value as a text; empty where it is not one.
  std::string text(std::string_view column) const;
  /// The value as a number; NaN where it is not one.
  double number(std::string_view column) const;
  /// The value as a whole number; 0 where it is not one.
  std::int64_t whole(std::string_view column) const;
  /// Calls visit(column, value) for each column that the row has, in their order.
  void each(const std::function<void(std::string_view, const core::Value&)>& visit) const;

 private:
  using Cells = std::vector<std::pair<std::string_view, core::Value>>;  // columns and their values
  const core::Value* find(std::string_view column) const;
  Cells first_, last_;
};

struct PageTable {
  std::vector<PageRow> rows;
  /// Copies of rows of one rank, as the first points of curves over ranks. A copy has the series, panel and batch of
  /// its curve. Its original in `rows` has other ones, since one rank has no factors of an exchange.
  std::vector<PageRow> curve_starts;
  std::vector<core::Factor> varying;  ///< factors in which rows of one experiment differ
};

core::Json to_json(const core::Value&);
core::Json to_json(const PageRow&);
/// JSON for a script element. It has no "<", which could end the element or open a comment. Bytes that are not UTF-8
/// are replaced.
std::string script_json(const core::Json&);

/// Makes one row for each point that launches of one side, machine and build measured. The row has the median of each
/// number over launches, a 95 % interval over launches for each number that has intervals, and `launches`.
PageTable make_rows(std::span<const analysis::Side>);
/// Makes a row for each point of each launch.
PageTable make_separate_rows(std::span<const analysis::Side>);

/// Names sides after their files, without folder and extension; with the folder where two files have the same name.
void name_by_file(std::span<analysis::Side>);

/// The experiment of rows that compare two points.
inline constexpr std::string_view compare_experiment = "compare";
/// Adds a row of experiment "compare" for each point of the comparison, also for points that are missing on a side. Its
/// columns are series, panel, point (the point's label), ratio and its interval, verdict, reason and q_value.
void add_comparison(PageTable&, const analysis::Comparison&);

/// Writes {"columns": [...], "rows": [[...], ...], "curve_starts": [[...], ...]}, with the escapes of `script_json`.
/// This form takes a third of the bytes that one object for each row would take. Cost: the memory of one row.
void write_compact(const PageTable&, std::ostream&);

/// The name of a column for people, in the words of the charts: "mini-batch of a rank" for batch_per_rank. The name of
/// a time or a rate includes the unit.
std::string column_words(std::string_view key);

/// All rows as CSV, with every column that any row has, except spans.
std::string rows_csv(const PageTable&);

}  // namespace gradmeter::report
