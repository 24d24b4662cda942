// SPDX-License-Identifier: Apache-2.0
#include "model/table/table_layers.hpp"

#include <algorithm>
#include <cmath>
#include <span>

#include "core/error.hpp"
#include "core/format.hpp"
#include "model/table/layer_table.hpp"

namespace gradmeter::model {
namespace {

using kernels::Cell;
using kernels::ConvShape;
using kernels::GemmShape;
using kernels::Pass;
using kernels::Problem;
using kernels::RnnShape;
using kernels::Transpose;

bool is_recurrent(RowKind k) { return k == RowKind::lstm || k == RowKind::gru || k == RowKind::rnn; }
Cell cell_of(RowKind k) { return k == RowKind::lstm ? Cell::lstm : k == RowKind::gru ? Cell::gru : Cell::vanilla; }

/// Turns rows into layers, one after another.
class LayerBuilder {
 public:
  explicit LayerBuilder(const LayerTable& t) : table_(t) {}

  std::vector<TableLayer> build() {
    while (next_row_ < table_.rows.size()) {
      const TableRow& r = table_.rows[next_row_];
      if (is_recurrent(r.kind) && r.has_geometry) {
        recurrent(r);
      } else {
        layers_.push_back(single(r));
        ++next_row_;
      }
    }
    return std::move(layers_);
  }

 private:
  [[noreturn]] void refuse(const TableRow& r, std::string_view why) const {
    throw core::UsageError(fmt::format("{}:{}: {} {}", table_.name, r.line, r.layer, why));
  }

  TableLayer named(const TableRow& r, TableLayer::Kind kind) const {
    TableLayer l{.name = r.layer, .kind = kind};
    if (r.parameters > 0) l.rows.push_back(next_row_);
    return l;
  }

  TableLayer single(const TableRow& r) {
    if (r.kind == RowKind::embedding && r.shape.size() == 2) return embedding(r);
    if (r.forward_flops <= 0) return named(r, TableLayer::Kind::tensor);
    if (!r.has_geometry || r.groups > 1) return implied(r);
    switch (r.kind) {
      case RowKind::conv:
      case RowKind::conv1d:
        return convolution(r);
      case RowKind::attention_matmul:
        return attention(r);
      default:
        return product(r);
    }
  }

  TableLayer embedding(const TableRow& r) const {
    TableLayer l = named(r, TableLayer::Kind::embedding);
    l.vocabulary = r.shape[0], l.width = r.shape[1], l.lookups = std::max<std::size_t>(1, r.steps);
    return l;
  }

  /// The product that follows from a weight's shape and FLOP: n x k from the shape, m from the FLOP.
  TableLayer implied(const TableRow& r) {
    if (r.shape.empty()) refuse(r, "has FLOP but no shape: give one, or input and steps");
    TableLayer l = named(r, TableLayer::Kind::product);
    const std::size_t n = r.shape.front(), k = elements(r.shape) / n;
    const double rows = r.forward_flops / (2.0 * static_cast<double>(n) * static_cast<double>(k));
    l.shape = GemmShape{.m = static_cast<std::size_t>(std::max(1.0, std::round(rows))), .n = n, .k = k};
    l.is_implied = true;
    if (r.parameters == 0) tie(l, r);
    return l;
  }

  TableLayer product(const TableRow& r) {
    TableLayer l = named(r, TableLayer::Kind::product);
    // A vector multiplies rows of its own length.
    const std::size_t k = elements(r.kind == RowKind::vector ? r.shape : r.input);
    l.shape = GemmShape{.m = std::max<std::size_t>(1, r.steps), .n = elements(r.shape) / k, .k = k};
    if (r.parameters == 0) tie(l, r);
    return l;
  }

  /// Ties a product without a tensor of its own to the embedding of the same size.
  void tie(TableLayer& l, const TableRow& r) {
    for (TableLayer& e : layers_) {
      if (e.kind != TableLayer::Kind::embedding || table_.rows[e.rows.front()].parameters != elements(r.shape))
        continue;
      l.rows = e.rows;
      l.is_tied = e.is_tied = true;
      l.owner = static_cast<std::size_t>(&e - layers_.data());
      return;
    }
    refuse(r, "has no parameters, and there is no embedding of its shape above that it could share");
  }

  TableLayer convolution(const TableRow& r) const {
    TableLayer l = named(r, TableLayer::Kind::convolution);
    const bool is_flat = r.kind == RowKind::conv1d;  // shape: width x in x out, input: in x steps
    ConvShape s{.width = r.input.back(), .height = is_flat ? 1 : r.input[1], .channels = r.input.front(), .batch = 1};
    s.filters = is_flat ? r.shape[2] : r.shape[0];
    s.filter_width = is_flat ? r.shape[0] : r.shape[3];
    s.filter_height = is_flat ? 1 : r.shape[2];
    s.pad_height = is_flat ? 0 : r.padding[0], s.pad_width = r.padding[1];
    s.stride_height = is_flat ? 1 : r.stride[0], s.stride_width = r.stride[1];
    l.shape = s;
    return l;
  }

  TableLayer attention(const TableRow& r) const {
    TableLayer l = named(r, TableLayer::Kind::attention);
    const std::size_t width = elements(r.input);
    l.heads = std::max<std::size_t>(1, r.heads);
    if (width % l.heads != 0) refuse(r, fmt::format("has {} heads that do not divide its width {}", l.heads, width));
    l.shape = GemmShape{.m = r.steps, .n = r.steps, .k = width / l.heads};
    const double product_flops =
        2.0 * static_cast<double>(r.steps) * static_cast<double>(r.steps) * static_cast<double>(width);
    l.has_scores = r.forward_flops > 1.5 * product_flops;
    return l;
  }

  /// Reads one matrix for input and state, or two; then the biases.
  void recurrent(const TableRow& r) {
    TableLayer l = named(r, TableLayer::Kind::recurrent);
    if (r.input.empty()) refuse(r, "has no input, which says how wide the first of its matrices is");
    const std::size_t gates = gates_of(r.kind), input = elements(r.input);
    const std::size_t hidden = (is_fused(r) ? r.shape[1] : r.shape[0]) / gates;
    const RowKind kind = r.kind;
    ++next_row_;
    if (!is_fused(r)) {
      const TableRow* const state = next_row_ < table_.rows.size() ? &table_.rows[next_row_] : nullptr;
      if (!state || state->kind != kind || state->parameters != gates * hidden * hidden)
        refuse(r, fmt::format("is not followed by its recurrent weights, {} x {}", gates * hidden, hidden));
      l.rows.push_back(next_row_++);
      l.weight_rows = 2;
    }
    while (next_row_ < table_.rows.size() && table_.rows[next_row_].kind == RowKind::bias &&
           table_.rows[next_row_].parameters == gates * hidden)
      l.rows.push_back(next_row_++);
    l.shape = RnnShape{.cell = cell_of(kind),
                       .hidden = hidden,
                       .batch = 1,
                       .steps = std::max<std::size_t>(1, r.steps),
                       .input = input == hidden ? 0 : input};
    layers_.push_back(std::move(l));
  }

  const LayerTable& table_;
  std::size_t next_row_ = 0;
  std::vector<TableLayer> layers_;
};

}  // namespace

std::vector<TableLayer> layers_of(const LayerTable& t) { return LayerBuilder(t).build(); }

std::size_t rows_with_computed_gradients(const TableLayer& l) {
  if (l.kind == TableLayer::Kind::tensor) return 0;
  if (l.kind != TableLayer::Kind::recurrent) return 1;
  return std::min(l.rows.size(), l.weight_rows + 1);  // a recurrent operation has one bias
}

std::size_t TableLayer::input_elements() const {
  switch (kind) {
    case Kind::tensor:
    case Kind::embedding:
      return 0;
    case Kind::convolution: {
      const auto& s = std::get<ConvShape>(shape);
      return s.channels * s.height * s.width;
    }
    case Kind::recurrent: {
      const auto& s = std::get<RnnShape>(shape);
      return s.steps * s.input_width();
    }
    default: {
      const auto& s = std::get<GemmShape>(shape);
      return s.m * s.k * heads;
    }
  }
}

std::size_t TableLayer::output_elements() const {
  switch (kind) {
    case Kind::tensor:
      return 0;
    case Kind::embedding:
      return lookups * width;
    case Kind::convolution: {
      const auto& s = std::get<ConvShape>(shape);
      return s.filters * s.out_height() * s.out_width();
    }
    case Kind::recurrent: {
      const auto& s = std::get<RnnShape>(shape);
      return s.steps * s.hidden;
    }
    case Kind::attention: {
      const auto& s = std::get<GemmShape>(shape);
      return s.m * s.k * heads;
    }
    case Kind::product:
      break;
  }
  const auto& s = std::get<GemmShape>(shape);
  return s.m * s.n;
}

namespace {

LayerProblems product_problems(const GemmShape& s, bool input_gradient) {
  LayerProblems problems;
  problems.forward = {{.shape = GemmShape{.m = s.m, .n = s.n, .k = s.k, .transpose_b = Transpose::yes}}};
  problems.backward = {{.shape = GemmShape{.m = s.n, .n = s.k, .k = s.m, .transpose_a = Transpose::yes}}};
  if (input_gradient) problems.backward.push_back({.shape = GemmShape{.m = s.m, .n = s.k, .k = s.n}});
  return problems;
}

/// scores = q kᵀ, context = scores v; backward: the gradients of scores, v, q and k.
LayerProblems attention_problems(const TableLayer& l, std::size_t samples) {
  const auto& s = std::get<GemmShape>(l.shape);
  const std::size_t tokens = s.m, width = s.k, count = samples * l.heads;
  const GemmShape outer{.m = tokens, .n = tokens, .k = width, .transpose_b = Transpose::yes, .count = count},
      inner{.m = tokens, .n = width, .k = tokens, .count = count},
      inner_transposed{.m = tokens, .n = width, .k = tokens, .transpose_a = Transpose::yes, .count = count};
  LayerProblems problems;
  if (l.has_scores) problems.forward.push_back({.shape = outer});
  problems.forward.push_back({.shape = inner});
  problems.backward = {{.shape = outer}, {.shape = inner_transposed}};
  if (l.has_scores) problems.backward.insert(problems.backward.end(), {{.shape = inner}, {.shape = inner_transposed}});
  return problems;
}

}  // namespace

LayerProblems problems_of(const TableLayer& l, std::size_t samples, bool input_gradient, kernels::Precision precision) {
  LayerProblems problems;
  if (l.kind == TableLayer::Kind::product) {
    GemmShape s = std::get<GemmShape>(l.shape);
    s.m *= samples;
    problems = product_problems(s, input_gradient);
  } else if (l.kind == TableLayer::Kind::convolution) {
    ConvShape s = std::get<ConvShape>(l.shape);
    s.batch = samples;
    problems.forward = {{.shape = s}};
    problems.backward = {{.shape = s, .pass = Pass::backward_weights}};
    if (input_gradient) problems.backward.push_back({.shape = s, .pass = Pass::backward_data});
  } else if (l.kind == TableLayer::Kind::recurrent) {
    RnnShape s = std::get<RnnShape>(l.shape);
    s.batch = samples;
    problems = {.forward = {{.shape = s}}, .backward = {{.shape = s, .pass = Pass::backward_data}}};
  } else if (l.kind == TableLayer::Kind::attention) {
    problems = attention_problems(l, samples);
  }
  for (auto* const pass : {&problems.forward, &problems.backward})
    for (Problem& p : *pass) p.precision = precision;
  return problems;
}

namespace {

constexpr std::size_t least_width = 16;

std::size_t divided(std::size_t width, std::size_t divisor) {
  return width < least_width ? width : (width + divisor - 1) / divisor;
}

class Shrinker {
 public:
  Shrinker(const LayerTable& t, std::size_t divisor) : table_(t), divisor_(divisor) {}

  TableRow row(TableRow r) const {
    const bool is_filter = r.kind == RowKind::conv || r.kind == RowKind::conv1d;
    if (is_recurrent(r.kind)) return recurrent_row(r);
    if (r.kind == RowKind::attention_matmul) {
      require_divisible(r, r.shape);
      require_divisible(r, r.input);
    }
    for (std::size_t i = 0; i < r.shape.size(); ++i) {
      const bool is_side = is_filter && (r.kind == RowKind::conv ? i >= 2 : i == 0);
      if (!is_side) r.shape[i] = divided(r.shape[i], divisor_);
    }
    if (!r.input.empty()) r.input.front() = divided(r.input.front(), divisor_);
    return with_sizes_of_shape(std::move(r));
  }

 private:
  /// A matrix of a recurrent layer: both of its widths shrink, not the sum of input and state in a fused one, nor the
  /// product of gates and state.
  TableRow recurrent_row(TableRow r) const {
    const std::size_t gates = gates_of(r.kind), hidden = (is_fused(r) ? r.shape[1] : r.shape[0]) / gates;
    std::vector<std::size_t> widths = r.input;
    widths.push_back(hidden);
    require_divisible(r, widths);
    const std::size_t shrunk_hidden = divided(hidden, divisor_);
    const bool fused = is_fused(r);
    const std::size_t columns = divided(r.shape[1], divisor_);  // of a matrix of the input, or of the state
    if (!r.input.empty()) r.input.front() = divided(r.input.front(), divisor_);
    r.shape = fused ? std::vector{r.input.front() + shrunk_hidden, gates * shrunk_hidden}
                    : std::vector{gates * shrunk_hidden, columns};
    return with_sizes_of_shape(std::move(r));
  }
  TableRow with_sizes_of_shape(TableRow r) const {
    const double before = size(r.kind, table_.rows[index_of(r)]);
    r.parameters = r.parameters > 0 ? elements(r.shape) : 0;
    if (r.forward_flops > 0) r.forward_flops *= size(r.kind, r) / before;
    return r;
  }
  std::size_t index_of(const TableRow& r) const {
    return static_cast<std::size_t>(std::ranges::find(table_.rows, r.line, &TableRow::line) - table_.rows.begin());
  }
  /// The size to which a row's FLOP are proportional.
  static double size(RowKind kind, const TableRow& r) {
    return static_cast<double>(kind == RowKind::attention_matmul ? elements(r.input) : elements(r.shape));
  }
  void require_divisible(const TableRow& r, std::span<const std::size_t> widths) const {
    for (const std::size_t w : widths) {
      if (w >= least_width && w % (divisor_ * std::max<std::size_t>(1, r.heads)) != 0)
        throw core::UsageError(fmt::format("{}:{}: {} has a width of {} that {} does not divide{}; take another shrink",
                                           table_.name, r.line, r.layer, w, divisor_,
                                           r.heads > 1 ? fmt::format(" over its {} heads", r.heads) : ""));
    }
  }

  const LayerTable& table_;
  std::size_t divisor_;
};

}  // namespace

LayerTable shrunk(const LayerTable& t, std::size_t divisor) {
  LayerTable out = t;
  const Shrinker shrinker(t, divisor);
  for (TableRow& r : out.rows) r = shrinker.row(r);
  return out;
}

}  // namespace gradmeter::model
