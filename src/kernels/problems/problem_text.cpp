#include "kernels/problems/problem_text.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <vector>

#include "core/error.hpp"
#include "core/format.hpp"
#include "core/name.hpp"
#include "kernels/problems/problem_columns.hpp"

namespace gradmeter::kernels {
namespace {

/// What a shape's text calls a column of a file, where the two differ, and which keys there are.
struct Keys {
  KernelKind operation;
  std::string_view batch;  ///< the key of the batch dimension; empty: none
  std::vector<std::string> keys;
  std::map<std::string, std::string> columns;
};
const std::vector<Keys>& all_keys() {
  static const std::vector<Keys> all{
      {KernelKind::gemm, "n", {"m", "n", "k", "a", "b", "packed", "count"}, {{"a", "trans_a"}, {"b", "trans_b"}}},
      {KernelKind::conv,
       "n",
       {"w", "h", "c", "n", "k", "fw", "fh", "pw", "ph", "sw", "sh"},
       {{"fw", "filter_w"},
        {"fh", "filter_h"},
        {"pw", "pad_w"},
        {"ph", "pad_h"},
        {"sw", "stride_w"},
        {"sh", "stride_h"}}},
      {KernelKind::rnn, "batch", {"cell", "hidden", "batch", "steps", "input"}, {{"steps", "timesteps"}}},
      {KernelKind::sparse, "n", {"m", "n", "k", "sparsity", "format"}, {}},
      {KernelKind::pointwise, "", {"kind", "elements", "fused"}, {}},
  };
  return all;
}

const Keys& keys_of(std::string_view operation) {
  std::vector<std::string> names;
  for (const Keys& k : all_keys()) {
    if (name(k.operation) == operation) return k;
    names.emplace_back(name(k.operation));
  }
  core::refuse_unknown("operation", std::string(operation), names);
}

/// "m=1,n=2" as names of columns and values, with a batch of 1 where it is left out.
void split_shape(std::string_view shape, const Keys& known, std::vector<std::string>& names,
                 std::vector<CsvCell>& values) {
  const auto add = [&](const std::string& key, std::string value) {
    const auto column = known.columns.find(key);
    names.push_back(column == known.columns.end() ? key : column->second);
    values.push_back({std::move(value), names.size()});
  };
  bool has_batch = known.batch.empty();
  for (std::size_t at = 0; at < shape.size();) {
    const std::size_t end = std::min(shape.find(',', at), shape.size());
    const std::string_view item = shape.substr(at, end - at);
    const std::size_t is = item.find('=');
    const std::string key(item.substr(0, is));
    if (is == std::string_view::npos || std::ranges::find(known.keys, key) == known.keys.end()) {
      throw core::UsageError(fmt::format("'{}': a {} is written KEY=VALUE,... with keys {}", item,
                                         name(known.operation), fmt::join(known.keys, ", ")));
    }
    add(key, std::string(item.substr(is + 1)));
    has_batch |= key == known.batch;
    at = end + 1;
  }
  if (!has_batch) add(std::string(known.batch), "1");
}

}  // namespace

std::string problem_text(const ProblemShape& shape) {
  return fmt::format("{}:{}", name(Problem{.shape = shape}.operation()), text(shape));
}

ProblemShape parse_shape(std::string_view text) {
  const std::size_t colon = text.find(':');
  if (colon == std::string_view::npos) {
    throw core::UsageError(
        fmt::format("'{}': a shape is written OPERATION:KEY=VALUE,... as in gemm:m=1760,n=16,k=1760,a=N,b=N", text));
  }
  const Keys& known = keys_of(text.substr(0, colon));
  std::vector<std::string> names;
  std::vector<CsvCell> values;
  split_shape(text.substr(colon + 1), known, names, values);
  try {
    return shape_reader(names, std::string(text))(CsvRow(names, values));
  } catch (const CsvFault& f) {
    throw core::UsageError(fmt::format("'{}': {}", text, f.what));
  }
}

std::optional<ProblemShape> with_batch(const ProblemShape& shape, std::size_t batch) {
  ProblemShape out = shape;
  if (auto* gemm = std::get_if<GemmShape>(&out)) return gemm->n = batch, out;
  if (auto* conv = std::get_if<ConvShape>(&out)) return conv->batch = batch, out;
  if (auto* rnn = std::get_if<RnnShape>(&out)) return rnn->batch = batch, out;
  if (auto* sparse = std::get_if<SparseShape>(&out)) return sparse->n = batch, out;
  return std::nullopt;
}

}  // namespace gradmeter::kernels
