#include "model/table/layer_table.hpp"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <functional>
#include <numeric>
#include <set>
#include <sstream>

#include "core/error.hpp"
#include "core/format.hpp"
#include "kernels/problems/csv.hpp"
#include "model/table/row_geometry.hpp"

namespace gradmeter::model {
namespace {

using kernels::CsvFault;
using kernels::CsvRow;

constexpr std::array<std::string_view, 12> kind_names{"conv",      "conv1d", "linear", "linear_tied",
                                                      "lstm",      "gru",    "rnn",    "attention_matmul",
                                                      "embedding", "norm",   "bias",   "vector"};
constexpr std::array<std::string_view, 5> needed_columns{"layer", "kind", "shape", "params",
                                                         "forward_flops_per_sample"};
constexpr std::array<std::string_view, 6> other_columns{"input", "stride", "padding", "groups", "steps", "heads"};

void check_columns_of_table(const std::vector<std::string>& names) {
  for (const auto column : needed_columns) {
    if (std::ranges::count(names, column) == 0) {
      throw CsvFault{1, fmt::format("there is no column {}; the first line names the columns {}", column,
                                    fmt::join(needed_columns, ","))};
    }
  }
  std::size_t at = 1;
  for (const auto& n : names) {
    if (std::ranges::count(needed_columns, n) + std::ranges::count(other_columns, n) == 0) {
      throw CsvFault{at, fmt::format("'{}' is no column; besides {} there are {}", n, fmt::join(needed_columns, ","),
                                     fmt::join(other_columns, ","))};
    }
    if (std::ranges::count(names, n) > 1) throw CsvFault{at, fmt::format("the column {} is there twice", n)};
    at += n.size() + 1;
  }
}

/// Extents that the shape of each kind has; 0: any number of them.
std::size_t extents_of(RowKind kind) {
  switch (kind) {
    case RowKind::conv:
      return 4;
    case RowKind::conv1d:
      return 3;
    case RowKind::linear:
    case RowKind::linear_tied:
    case RowKind::lstm:
    case RowKind::gru:
    case RowKind::rnn:
    case RowKind::embedding:
      return 2;
    default:
      return 0;
  }
}

bool has_no_tensor(RowKind kind) { return kind == RowKind::linear_tied || kind == RowKind::attention_matmul; }

bool has_products(RowKind kind) { return kind != RowKind::embedding && kind != RowKind::norm && kind != RowKind::bias; }

std::size_t elements(const std::vector<std::size_t>& shape) {
  return std::accumulate(shape.begin(), shape.end(), std::size_t{1}, std::multiplies<>());
}

void check_shape(const CsvRow& r, const TableRow& t) {
  if (t.shape.empty() && !has_no_tensor(t.kind)) {
    throw CsvFault{r.column("shape"), fmt::format("a {} row needs a shape", name(t.kind))};
  }
  const std::size_t extents = extents_of(t.kind);
  if (!t.shape.empty() && extents != 0 && t.shape.size() != extents) {
    throw CsvFault{r.column("shape"), fmt::format("the shape of a {} row has {} extents", name(t.kind), extents)};
  }
  if (!t.shape.empty() && t.kind == RowKind::attention_matmul) {
    throw CsvFault{r.column("shape"), "an attention_matmul row multiplies no tensor: its shape is -"};
  }
  const std::size_t product = has_no_tensor(t.kind) ? 0 : elements(t.shape);
  if (t.parameters != product) {
    throw CsvFault{r.column("params"), fmt::format("{} parameters, but the shape '{}' of a {} row has {}", t.parameters,
                                                   r.text("shape"), name(t.kind), product)};
  }
}

double flops_of_row(const CsvRow& r, const TableRow& t) {
  constexpr const char* column = "forward_flops_per_sample";
  const double flops = r.number(column).value_or(0);
  constexpr double most = 9007199254740992.0;  // 2^53: beyond it a double skips whole numbers
  if (flops < 0 || flops > most || std::floor(flops) != flops) {
    throw CsvFault{r.column(column), fmt::format("'{}' is no whole number from 0 to 2^53", r.text(column))};
  }
  if (flops > 0 && !has_products(t.kind)) {
    throw CsvFault{r.column(column), fmt::format("a {} row has no products: write 0", name(t.kind))};
  }
  if (!t.shape.empty() && std::fmod(flops, 2.0 * static_cast<double>(elements(t.shape))) != 0) {
    throw CsvFault{r.column(column),
                   fmt::format("'{}' is no multiple of 2 FLOP for each of the {} elements of the shape", r.text(column),
                               elements(t.shape))};
  }
  return flops;
}

TableRow read_row(const CsvRow& r, std::size_t line) {
  TableRow t{.layer = r.text("layer"),
             .kind = static_cast<RowKind>(r.choice("kind", {kind_names.begin(), kind_names.end()})),
             .shape = r.extents("shape", 1),
             .parameters = r.count("params", 0),
             .line = line};
  if (t.layer.empty()) throw CsvFault{r.column("layer"), "a row needs a name"};
  check_shape(r, t);
  t.forward_flops = flops_of_row(r, t);
  read_geometry(r, t);
  return t;
}

}  // namespace

std::string_view name(RowKind kind) { return kind_names[static_cast<std::size_t>(kind)]; }

std::size_t LayerTable::parameters() const {
  std::size_t sum = 0;
  for (const auto& r : rows) sum += r.parameters;
  return sum;
}

double LayerTable::forward_flops() const {
  double sum = 0;
  for (const auto& r : rows) sum += r.forward_flops;
  return sum;
}

LayerTable parse_layer_table(std::string_view text, const std::string& file) {
  LayerTable table{.name = file, .sample = {}, .source = {}, .rows = {}};
  std::set<std::string> names;
  std::size_t parameters = 0;
  const auto faults = kernels::read_csv(text, file, check_columns_of_table, [&](const CsvRow& r, std::size_t line) {
    TableRow row = read_row(r, line);
    if (!names.insert(row.layer).second) {
      throw CsvFault{r.column("layer"),
                     fmt::format("'{}' is the name of an earlier row; names must differ", row.layer)};
    }
    constexpr std::size_t most = std::size_t{1} << 40;
    if ((parameters += row.parameters) > most) throw CsvFault{r.column("params"), "more than 2^40 parameters in all"};
    table.rows.push_back(std::move(row));
  });
  if (!faults.empty()) throw core::UsageError(faults.front());
  if (table.parameters() == 0) {
    throw core::UsageError(fmt::format("{}:1:1: no row has parameters; give a table of layers with tensors", file));
  }
  if (table.forward_flops() == 0) {
    throw core::UsageError(fmt::format("{}:1:1: no row has FLOP; give those of products for a sample", file));
  }
  return table;
}

LayerTable read_layer_table(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::stringstream text;
  text << in.rdbuf();
  if (!in) throw core::UsageError(fmt::format("{}: cannot be read; give a CSV file of layers", path));
  return parse_layer_table(text.str(), path);
}

}  // namespace gradmeter::model
