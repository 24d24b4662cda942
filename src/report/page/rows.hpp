// Points as rows of one wide table: what charts, the page's table and data for other programs are made from.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "analysis/comparison.hpp"
#include "core/json.hpp"
#include "core/result_file.hpp"

namespace gradmeter::report {

/// A row is an object: experiment, status, reason, source (index of the side), series, and each factor and metric that
/// is not null by its own key. A summary gives its median by the key, and `KEY_ci95_low`, `KEY_ci95_high`. Numbers have
/// six digits. `series` names the row's values of all factors in which the experiment's rows differ, but for sizes,
/// batches and ranks, which are axes: "ring qsgd4:bucket=512,…"; with several sides it begins with the side's name.
/// Rows with a codec whose point was also measured without have `codec_gain`, how many times shorter they take, and
/// from both intervals `codec_gain_ci95_low`, `codec_gain_ci95_high`.
struct RowTable {
  std::vector<core::Json> rows;
  /// Copies of points of one rank, for the curves that begin there: on one rank an exchange's factors do not apply.
  std::vector<core::Json> curve_starts;
  std::vector<std::string> varying;  ///< factors in which rows of one experiment differ
};

/// merged: launches of one source that measured the same point are one row, with the median of each number over
/// launches, the 95 % interval over launches of what has one, and `launches`. separate: a row for each point.
enum class Launches { merged, separate };
RowTable make_rows(std::span<const analysis::Side>, Launches = Launches::merged);

/// A row of experiment "compare" for each point that both sides have: point (its label), ratio, verdict, q_value.
void add_comparison(RowTable&, const analysis::Comparison&);

/// {"columns": [...], "rows": [[...], ...]}: a third of the bytes of objects.
core::Json compact(const RowTable&);

/// All rows as CSV with every column that any row has.
std::string rows_csv(const RowTable&);

}  // namespace gradmeter::report
