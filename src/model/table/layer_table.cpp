// SPDX-License-Identifier: Apache-2.0
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
#include "core/name.hpp"

namespace gradmeter::model {
namespace {

using core::CsvFault;
using core::CsvRow;

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

/// The number of extents in a shape of each kind; 0: any number.
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

void check_shape(const CsvRow& r, const TableRow& t) {
  if (t.shape.empty() && !has_no_tensor(t.kind)) {
    throw CsvFault{r.begin_byte("shape"), fmt::format("a {} row needs a shape", name(t.kind))};
  }
  const std::size_t extents = extents_of(t.kind);
  if (!t.shape.empty() && extents != 0 && t.shape.size() != extents) {
    throw CsvFault{r.begin_byte("shape"), fmt::format("the shape of a {} row has {} extents", name(t.kind), extents)};
  }
  if (!t.shape.empty() && t.kind == RowKind::attention_matmul) {
    throw CsvFault{r.begin_byte("shape"), "an attention_matmul row multiplies no tensor: its shape is -"};
  }
  const std::size_t product = has_no_tensor(t.kind) ? 0 : elements(t.shape);
  if (t.parameters != product) {
    throw CsvFault{r.begin_byte("params"), fmt::format("{} parameters, but the shape '{}' of a {} row has {}",
                                                       t.parameters, r.text("shape"), name(t.kind), product)};
  }
}

double flops_of_row(const CsvRow& r, const TableRow& t) {
  constexpr const char* column = "forward_flops_per_sample";
  const double flops = r.number(column).value_or(0);
  constexpr double most = 9007199254740992.0;  // 2^53: beyond it a double skips whole numbers
  if (flops < 0 || flops > most || std::floor(flops) != flops) {
    throw CsvFault{r.begin_byte(column), fmt::format("'{}' is no whole number from 0 to 2^53", r.text(column))};
  }
  if (flops > 0 && !has_products(t.kind)) {
    throw CsvFault{r.begin_byte(column), fmt::format("a {} row has no products: write 0", name(t.kind))};
  }
  if (!t.shape.empty() && std::fmod(flops, 2.0 * static_cast<double>(elements(t.shape))) != 0) {
    throw CsvFault{r.begin_byte(column),
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
  if (t.layer.empty()) throw CsvFault{r.begin_byte("layer"), "a row needs a name"};
  check_shape(r, t);
  t.forward_flops = flops_of_row(r, t);
  read_geometry(r, t);
  return t;
}

}  // namespace

std::string_view name(RowKind kind) { return kind_names[static_cast<std::size_t>(kind)]; }

std::size_t gates_of(RowKind kind) { return kind == RowKind::lstm ? 4 : kind == RowKind::gru ? 3 : 1; }

std::size_t elements(const std::vector<std::size_t>& shape) {
  return std::accumulate(shape.begin(), shape.end(), std::size_t{1}, std::multiplies<>());
}

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

std::size_t LayerTable::tensors() const {
  return static_cast<std::size_t>(std::ranges::count_if(rows, [](const TableRow& r) { return r.parameters > 0; }));
}

const TableRow& LayerTable::largest() const { return *std::ranges::max_element(rows, {}, &TableRow::parameters); }

double LayerTable::activation_bytes() const {
  double sum = 0;
  for (const auto& r : rows) sum += 4 * output_elements(r);
  return sum;
}

LayerTable parse_layer_table(std::string_view text, const std::string& file) {
  LayerTable table{.name = file, .sample = {}, .source = {}, .rows = {}};
  std::set<std::string> names;
  std::size_t parameters = 0;
  const auto faults = core::read_csv(text, file, check_columns_of_table, [&](const CsvRow& r, std::size_t line) {
    TableRow row = read_row(r, line);
    if (!names.insert(row.layer).second) {
      throw CsvFault{r.begin_byte("layer"),
                     fmt::format("'{}' is the name of an earlier row; names must differ", row.layer)};
    }
    constexpr std::size_t most = std::size_t{1} << 40;
    if ((parameters += row.parameters) > most)
      throw CsvFault{r.begin_byte("params"), "more than 2^40 parameters in all"};
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

namespace {

using core::CsvFault;
using core::CsvRow;

constexpr std::array geometry_columns{"input", "stride", "padding", "groups", "steps", "heads"};

std::vector<std::string_view> columns_of(RowKind kind) {
  switch (kind) {
    case RowKind::conv:
      return {"input", "stride", "padding", "groups"};
    case RowKind::conv1d:
      return {"input", "stride", "padding"};
    case RowKind::attention_matmul:
      return {"input", "steps", "heads"};
    case RowKind::embedding:
    case RowKind::vector:
      return {"steps"};
    case RowKind::norm:
    case RowKind::bias:
      return {};
    default:
      return {"input", "steps"};
  }
}

bool is_given(const CsvRow& r, const char* column) { return !r.text(column).empty(); }

std::size_t count(const CsvRow& r, const char* column) { return is_given(r, column) ? r.count(column, 1) : 0; }

/// Reads "2x1", height and width, or "2", which is both.
std::array<std::size_t, 2> height_and_width(const CsvRow& r, const char* column, std::size_t least) {
  const auto given = r.extents(column, least);
  if (given.empty()) return {least, least};
  if (given.size() > 2) throw CsvFault{r.begin_byte(column), fmt::format("{} is one number or HEIGHTxWIDTH", column)};
  return {given.front(), given.back()};
}

void need_input(const CsvRow& r, const TableRow& t, std::size_t extents, const char* what) {
  if (t.input.size() == extents) return;
  throw CsvFault{r.begin_byte("input"),
                 fmt::format("'{}' is no input of a {} row; give {}", r.text("input"), name(t.kind), what)};
}

std::size_t output_extent(const CsvRow& r, std::size_t in, std::size_t padding, std::size_t filter,
                          std::size_t stride) {
  if (filter > in + 2 * padding) throw CsvFault{r.begin_byte("input"), "the filter is larger than the padded input"};
  return (in + 2 * padding - filter) / stride + 1;
}

double weight_count(const TableRow& t) {
  return std::accumulate(t.shape.begin(), t.shape.end(), 1.0, std::multiplies<>());
}

/// The number of uses of each weight of a convolution for a sample.
double conv_outputs(const CsvRow& r, const TableRow& t) {
  if (t.kind == RowKind::conv1d) {
    need_input(r, t, 2, "CHANNELSxSTEPS");
    if (t.input[0] != t.shape[1])
      throw CsvFault{r.begin_byte("input"), "its channels are not the second extent of the shape"};
    return static_cast<double>(output_extent(r, t.input[1], t.padding[1], t.shape[0], t.stride[1]));
  }
  need_input(r, t, 3, "CHANNELSxHEIGHTxWIDTH");
  if (t.shape[0] % t.groups != 0) throw CsvFault{r.begin_byte("groups"), "groups do not divide the filters"};
  if (t.input[0] != t.shape[1] * t.groups) {
    throw CsvFault{r.begin_byte("input"), "its channels are not the second extent of the shape times groups"};
  }
  return static_cast<double>(output_extent(r, t.input[1], t.padding[0], t.shape[2], t.stride[0])) *
         static_cast<double>(output_extent(r, t.input[2], t.padding[1], t.shape[3], t.stride[1]));
}

void check_matrix_input(const CsvRow& r, const TableRow& t) {
  need_input(r, t, 1, "the number of features");
  if (t.shape.empty()) throw CsvFault{r.begin_byte("shape"), "a row with an input needs a shape"};
  if (t.input[0] != t.shape[0] && t.input[0] != t.shape[1]) {
    throw CsvFault{r.begin_byte("input"), "the features are no extent of the shape"};
  }
}

/// Checks that the shape has one of three forms: (input + hidden) x (gates * hidden), (gates * hidden) x input, and
/// (gates * hidden) x hidden.
void check_recurrent_input(const CsvRow& r, const TableRow& t) {
  if (t.steps == 0) throw CsvFault{r.begin_byte("steps"), "a recurrent row with an input needs its steps"};
  const std::size_t gates = gates_of(t.kind);
  if (t.input.empty()) {
    if (t.shape[0] != gates * t.shape[1]) {
      throw CsvFault{r.begin_byte("shape"), "without an input the shape is (gates * hidden) x hidden"};
    }
    return;
  }
  need_input(r, t, 1, "the number of features");
  const bool of_input = t.shape[1] == t.input[0] && t.shape[0] % gates == 0;
  const bool fused = t.shape[1] % gates == 0 && t.shape[0] == t.input[0] + t.shape[1] / gates;
  if (!of_input && !fused) {
    throw CsvFault{
        r.begin_byte("input"),
        "with this input the shape is neither (input + hidden) x (gates * hidden) nor (gates * hidden) x input"};
  }
}

/// The FLOP of a sample that the geometry allows: one value, or for an attention two, with both products or with one.
std::vector<double> flops_by_geometry(const CsvRow& r, TableRow& t) {
  switch (t.kind) {
    case RowKind::conv:
    case RowKind::conv1d:
      return {2 * weight_count(t) * conv_outputs(r, t)};
    case RowKind::attention_matmul: {
      need_input(r, t, 1, "the width of the model");
      if (t.steps == 0) throw CsvFault{r.begin_byte("steps"), "an attention needs its steps"};
      t.heads = std::max<std::size_t>(t.heads, 1);
      if (t.input[0] % t.heads != 0) throw CsvFault{r.begin_byte("heads"), "heads do not divide the input"};
      const double product =
          2.0 * static_cast<double>(t.steps) * static_cast<double>(t.steps) * static_cast<double>(t.input[0]);
      return {2 * product, product};
    }
    case RowKind::linear:
    case RowKind::linear_tied:
      check_matrix_input(r, t);
      t.steps = std::max<std::size_t>(t.steps, 1);
      break;
    case RowKind::lstm:
    case RowKind::gru:
    case RowKind::rnn:
      check_recurrent_input(r, t);
      break;
    case RowKind::embedding:
      return {0};
    default:
      break;
  }
  return {2 * weight_count(t) * static_cast<double>(t.steps)};
}

void check_columns(const CsvRow& r, RowKind kind) {
  const auto known = columns_of(kind);
  for (const char* column : geometry_columns) {
    if (is_given(r, column) && std::ranges::count(known, column) == 0) {
      throw CsvFault{r.begin_byte(column), fmt::format("a {} row has no {}; leave it empty", name(kind), column)};
    }
  }
}

/// The number of products in the sum of each result of the row.
double terms_of_result(const TableRow& t) {
  switch (t.kind) {
    case RowKind::conv:
      return weight_count(t) / static_cast<double>(t.shape[0]);
    case RowKind::conv1d:
      return weight_count(t) / static_cast<double>(t.shape[2]);
    case RowKind::vector:
      return weight_count(t);
    case RowKind::linear:
    case RowKind::linear_tied:
      return static_cast<double>(t.input.empty() ? t.shape[1] : t.input[0]);
    default:
      return static_cast<double>(t.shape[is_fused(t) ? 0 : 1]);
  }
}

}  // namespace

bool is_fused(const TableRow& t) {
  return !t.input.empty() && !(t.shape[1] == t.input[0] && t.shape[0] % gates_of(t.kind) == 0);
}

double output_elements(const TableRow& t) {
  if (t.forward_flops == 0) return 0;
  if (t.kind != RowKind::attention_matmul) return t.forward_flops / (2 * terms_of_result(t));
  const auto steps = static_cast<double>(t.steps);
  const double context = steps * static_cast<double>(t.input[0]);
  const bool has_scores = t.forward_flops > 2 * steps * context;
  return context + (has_scores ? static_cast<double>(t.heads) * steps * steps : 0);
}

void read_geometry(const CsvRow& r, TableRow& t) {
  check_columns(r, t.kind);
  t.has_geometry = std::ranges::any_of(geometry_columns, [&](const char* c) { return is_given(r, c); });
  if (!t.has_geometry) {
    if (t.shape.empty() && t.forward_flops > 0) {
      throw CsvFault{r.begin_byte("input"),
                     "a row without a shape needs its input and steps: its products are not known else"};
    }
    return;
  }
  t.input = r.extents("input", 1);
  t.stride = height_and_width(r, "stride", 1);
  t.padding = height_and_width(r, "padding", 0);
  t.groups = std::max<std::size_t>(count(r, "groups"), 1);
  t.steps = count(r, "steps");
  t.heads = count(r, "heads");
  const auto flops = flops_by_geometry(r, t);
  if (std::ranges::count(flops, t.forward_flops) == 0) {
    throw CsvFault{
        r.begin_byte("forward_flops_per_sample"),
        fmt::format("{:.0f} FLOP, but the geometry gives {:.0f}; correct one of them", t.forward_flops, flops[0])};
  }
}

namespace {

constexpr std::string_view index_name = "index";

void read_sample_and_source(LayerTable& table, std::string_view index) {
  core::read_csv(
      index, "index.csv", [](const auto&) {},
      [&](const core::CsvRow& row, std::size_t) {
        if (row.text("model") != table.name) return;
        table.sample = row.text("sample");
        table.source = row.text("source");
      });
}

}  // namespace

std::vector<std::string_view> shipped_layer_tables() {
  std::vector<std::string_view> out;
  for (const auto& f : embedded_layer_tables()) {
    if (f.name != index_name) out.push_back(f.name);
  }
  return out;
}

LayerTable shipped_layer_table(std::string_view name) {
  std::string_view text, index;
  for (const auto& f : embedded_layer_tables()) {
    if (f.name == index_name) {
      index = f.text;
    } else if (f.name == name) {
      text = f.text;
    }
  }
  if (text.empty()) {
    const auto names = shipped_layer_tables();
    core::refuse_unknown("layer table", name, std::vector<std::string>(names.begin(), names.end()));
  }
  LayerTable table = parse_layer_table(text, std::string(name) + ".csv");
  table.name = name;
  read_sample_and_source(table, index);
  return table;
}

}  // namespace gradmeter::model
