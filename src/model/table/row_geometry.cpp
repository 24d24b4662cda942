#include "model/table/row_geometry.hpp"

#include <algorithm>
#include <functional>
#include <numeric>

#include "core/format.hpp"

namespace gradmeter::model {
namespace {

using kernels::CsvFault;
using kernels::CsvRow;

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

/// "2" is both; "2x1" height and width.
std::array<std::size_t, 2> height_and_width(const CsvRow& r, const char* column, std::size_t least) {
  const auto given = r.extents(column, least);
  if (given.empty()) return {least, least};
  if (given.size() > 2) throw CsvFault{r.column(column), fmt::format("{} is one number or HEIGHTxWIDTH", column)};
  return {given.front(), given.back()};
}

void need_input(const CsvRow& r, const TableRow& t, std::size_t extents, const char* what) {
  if (t.input.size() == extents) return;
  throw CsvFault{r.column("input"),
                 fmt::format("'{}' is no input of a {} row; give {}", r.text("input"), name(t.kind), what)};
}

std::size_t gates(RowKind kind) { return kind == RowKind::lstm ? 4 : kind == RowKind::gru ? 3 : 1; }

std::size_t output_extent(const CsvRow& r, std::size_t in, std::size_t padding, std::size_t filter,
                          std::size_t stride) {
  if (filter > in + 2 * padding) throw CsvFault{r.column("input"), "the filter is larger than the padded input"};
  return (in + 2 * padding - filter) / stride + 1;
}

double weights(const TableRow& t) { return std::accumulate(t.shape.begin(), t.shape.end(), 1.0, std::multiplies<>()); }

/// How often each weight of a convolution is used for a sample.
double conv_outputs(const CsvRow& r, const TableRow& t) {
  if (t.kind == RowKind::conv1d) {
    need_input(r, t, 2, "CHANNELSxSTEPS");
    if (t.input[0] != t.shape[1])
      throw CsvFault{r.column("input"), "its channels are not the second extent of the shape"};
    return static_cast<double>(output_extent(r, t.input[1], t.padding[1], t.shape[0], t.stride[1]));
  }
  need_input(r, t, 3, "CHANNELSxHEIGHTxWIDTH");
  if (t.shape[0] % t.groups != 0) throw CsvFault{r.column("groups"), "groups do not divide the filters"};
  if (t.input[0] != t.shape[1] * t.groups) {
    throw CsvFault{r.column("input"), "its channels are not the second extent of the shape times groups"};
  }
  return static_cast<double>(output_extent(r, t.input[1], t.padding[0], t.shape[2], t.stride[0])) *
         static_cast<double>(output_extent(r, t.input[2], t.padding[1], t.shape[3], t.stride[1]));
}

void check_matrix_input(const CsvRow& r, const TableRow& t) {
  need_input(r, t, 1, "the number of features");
  if (t.input[0] != t.shape[0] && t.input[0] != t.shape[1]) {
    throw CsvFault{r.column("input"), "the features are no extent of the shape"};
  }
}

/// Three forms: (input + hidden) x (gates * hidden), (gates * hidden) x input, and (gates * hidden) x hidden.
void check_recurrent_input(const CsvRow& r, const TableRow& t) {
  if (t.steps == 0) throw CsvFault{r.column("steps"), "a recurrent row with an input needs its steps"};
  const std::size_t g = gates(t.kind);
  if (t.input.empty()) {
    if (t.shape[0] != g * t.shape[1]) {
      throw CsvFault{r.column("shape"), "without an input the shape is (gates * hidden) x hidden"};
    }
    return;
  }
  need_input(r, t, 1, "the number of features");
  const bool of_input = t.shape[1] == t.input[0] && t.shape[0] % g == 0;
  const bool fused = t.shape[1] % g == 0 && t.shape[0] == t.input[0] + t.shape[1] / g;
  if (!of_input && !fused) {
    throw CsvFault{
        r.column("input"),
        "with this input the shape is neither (input + hidden) x (gates * hidden) nor (gates * hidden) x input"};
  }
}

/// FLOP of a sample: one value, or those of an attention's two products and of one of them.
std::vector<double> flops_by_geometry(const CsvRow& r, TableRow& t) {
  switch (t.kind) {
    case RowKind::conv:
    case RowKind::conv1d:
      return {2 * weights(t) * conv_outputs(r, t)};
    case RowKind::attention_matmul: {
      need_input(r, t, 1, "the width of the model");
      if (t.steps == 0) throw CsvFault{r.column("steps"), "an attention needs its steps"};
      t.heads = std::max<std::size_t>(t.heads, 1);
      if (t.input[0] % t.heads != 0) throw CsvFault{r.column("heads"), "heads do not divide the input"};
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
  return {2 * weights(t) * static_cast<double>(t.steps)};
}

void check_columns(const CsvRow& r, RowKind kind) {
  const auto known = columns_of(kind);
  for (const char* column : geometry_columns) {
    if (is_given(r, column) && std::ranges::count(known, column) == 0) {
      throw CsvFault{r.column(column), fmt::format("a {} row has no {}; leave it empty", name(kind), column)};
    }
  }
}

/// Products that each result of the row is the sum of.
double terms_of_result(const TableRow& t) {
  switch (t.kind) {
    case RowKind::conv:
      return weights(t) / static_cast<double>(t.shape[0]);
    case RowKind::conv1d:
      return weights(t) / static_cast<double>(t.shape[2]);
    case RowKind::vector:
      return weights(t);
    case RowKind::linear:
    case RowKind::linear_tied:
      return static_cast<double>(t.input.empty() ? t.shape[1] : t.input[0]);
    default:
      return static_cast<double>(t.shape[is_fused(t) ? 0 : 1]);
  }
}

}  // namespace

bool is_fused(const TableRow& t) {
  return !t.input.empty() && !(t.shape[1] == t.input[0] && t.shape[0] % gates(t.kind) == 0);
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
      throw CsvFault{r.column("input"),
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
        r.column("forward_flops_per_sample"),
        fmt::format("{:.0f} FLOP, but the geometry gives {:.0f}; correct one of them", t.forward_flops, flops[0])};
  }
}

}  // namespace gradmeter::model
