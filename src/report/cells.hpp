// SPDX-License-Identifier: Apache-2.0
// The parts that tables of reports share: values as the text of cells, columns of tables and of CSV, and groups of
// points.
#pragma once
#include <concepts>
#include <functional>
#include <initializer_list>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/launches.hpp"
#include "core/format.hpp"
#include "core/result.hpp"
#include "core/table.hpp"

namespace gradmeter::report {

/// The text of a value; "-" for null.
std::string text(const core::Value&);
/// The number with two decimals below 10, one decimal below 100, and none from 100 on; "-" where it is not finite.
std::string digits(double);
/// The 95 % interval of a time: "1.20–1.24"; "-" where there is none. per_second: the number of shown units in a
/// second, such as 1e3 for ms.
std::string interval(const core::Value& time, double per_second);
bool is_true(const core::Value&);
/// The value as a whole number; 0 where it is not one.
std::int64_t integer(const core::Value&);
/// The codec's short name, if the point has it; else its canonical name, with every parameter.
const core::Value& codec_label(const core::Point&);
/// The text of an error with three digits; "0" for no error at all, "-" where it is not finite.
std::string error_text(double);
/// The text, in quotes where CSV asks for them (RFC 4180).
std::string csv_quoted(const std::string&);
/// The text as a cell of CSV. If it has more than one character and begins with = + - or @, so that a spreadsheet would
/// take it for a formula, an apostrophe is put before it.
std::string csv_text(const std::string&);
/// The value as a cell of CSV; empty for null and for numbers that are not finite.
std::string csv_cell(const core::Value&);
/// The text with the escapes of XML and HTML, also for attributes, without characters that XML 1.0 does not allow
/// (core::printable).
std::string markup_text(std::string_view);
/// The status and the reason of a point that was not measured, for the note of its row: "skipped: why". Empty if it was
/// measured.
std::string why_not(const core::Point&);
/// The amount of the legend that is printed below tables.
enum class Legend {
  brief,  ///< at most three lines: the facts that are misread most easily, the marks, and how to get the rest
  whole,
};
/// The last line of a brief legend.
inline constexpr std::string_view whole_legend_line = "--legend explains all columns and marks\n";
/// The text above a table of these points. Its first line says how steady the machine was during the least steady point
/// [%], how many blocks were disturbed, and how many were left out. A point's steadiness is the least of three numbers:
/// the canary's best time ÷ its median time (bench/engine/machine_state), 1 − the share of the time that the hypervisor
/// took, and 1 − the share for which the point's ranks waited for a core. A second line says how many points are
/// disturbed, and by what. Empty if the canary ran beside none of the points.
std::string machine_line(std::span<const core::Point* const>);
/// The lines of a legend that explain the mark "~", and with `has_machine_line` also the text of `machine_line`. Keys
/// are padded to `key_width` columns.
std::string disturbed_legend(std::size_t key_width, bool has_machine_line);
/// A row's note, such as "slow: rank 3 on node1; busy: node2". It names the rank whose median time stands out, if there
/// is one. If the point is on several nodes and its ranks waited for cores, the note also names the host whose cores
/// other programs used.
std::string slow_and_busy(const core::Point&);
/// A number with its noun: "1 rank", "2 ranks".
std::string counted(std::integral auto n, std::string_view what) {
  return fmt::format("{} {}{}", n, what, n == 1 ? "" : "s");
}
/// True if busy threads outnumber cores; tables mark such points "*".
bool oversubscribed(const core::Point&);
/// Short names of a factor's values, by canonical name. They lack the parameters that all values with the same base
/// name share: "qsgd4", or "qsgd4:bucket=128" if values differ in `bucket`.
using Labels = std::map<std::string, std::string>;
Labels short_labels(std::span<const core::Point>, core::Factor);
/// The exchange of a point: "ring/shm"; with a codec "ring/shm qsgd4"; only the algorithm if it is a vendor's, which
/// has no transport; "-" where nothing is exchanged.
std::string exchange(const core::Point&, const Labels&);

/// The factors that distinguish points whose rows have the same text. rows: the text of each point's row.
std::vector<core::Factor> distinguishing_factors(std::span<const core::Factors>, std::span<const std::string> rows);
/// Returns a function that gives the heading of the table in which a point is shown. If points have both the same
/// `heading` and the same `row`, every heading is followed by its point's values of the factors that distinguish those
/// points, so that they get tables of their own. `row`: all text in the point's row or cell. The arguments need not
/// outlive the result.
std::function<std::string(const core::Point&)> distinguishing_headings(
    std::span<const core::Point>, std::function<std::string(const core::Point&)> heading,
    const std::function<std::string(const core::Point&)>& row);
/// The values of these factors that are not null: " precision=bf16 threads=2".
std::string values_text(const core::Factors&, std::span<const core::Factor>);

/// A measured point with a codec, and the same point without one.
struct CodecPair {
  const core::Point* coded;
  const core::Point* plain;
  /// The median time without the codec, divided by that with it; the interval is computed from both times' intervals.
  analysis::Estimate gain() const;
};
/// Pairs in the order of the coded points. If several points without a codec fit, the last of them is used.
std::vector<CodecPair> codec_pairs(std::span<const core::Point* const>);

/// The points that share a name. `by_name` groups points by the name that the function gives them; names come in the
/// order in which they first appear.
struct NamedPoints {
  std::string name;
  std::vector<const core::Point*> points;
};
std::vector<NamedPoints> by_name(std::span<const core::Point>, const std::function<std::string(const core::Point&)>&);
/// Groups as `by_name` does, for tables in which each point has a cell of its own: points with equal factors, which
/// come from several runs, are kept apart. The name of the second run's point ends in " · run 2", and so on.
std::vector<NamedPoints> separate_runs(std::span<const core::Point>,
                                       const std::function<std::string(const core::Point&)>&);

// Columns of tables and of CSV, each described once by its head and by its cell in a row.

/// Columns of a text table whose rows are made from `Row`: a point, or points that share one row.
template <class Row>
class Columns {
 public:
  using Cell = std::function<std::string(const Row&)>;

  void add(core::Column column, Cell cell) {
    columns_.push_back(std::move(column));
    cells_.push_back(std::move(cell));
  }
  core::Table table() const { return core::Table(columns_); }
  std::vector<std::string> cells(const Row& row) const {
    std::vector<std::string> out;
    for (const auto& cell : cells_) out.push_back(cell(row));
    return out;
  }

 private:
  std::vector<core::Column> columns_;
  std::vector<Cell> cells_;
};

/// The columns of a CSV file of points. `status` and `reason` come first. Column names include units; null gives an
/// empty cell.
class CsvColumns {
 public:
  CsvColumns();
  CsvColumns& add(std::initializer_list<core::Factor>);
  CsvColumns& add(std::initializer_list<core::Metric>);
  /// Adds columns for keys of core::statistics. The name of a time's metric ends in "_s", and the statistic is put
  /// before that: "time_median_s".
  CsvColumns& statistics(core::Metric time, std::initializer_list<std::string_view> keys);
  /// Adds a column `name` with the number of samples of the time.
  CsvColumns& samples(core::Metric time, const std::string& name);
  /// Adds a column "stop" with the reason why sampling ended.
  CsvColumns& stop(core::Metric time);

  /// Each function returns a line with its line end.
  std::string header() const;
  std::string row(const core::Point&) const;

 private:
  void add_column(std::string name, std::function<core::Value(const core::Point&)> value);
  std::vector<std::string> names_;
  std::vector<std::function<core::Value(const core::Point&)>> values_;
};

}  // namespace gradmeter::report
