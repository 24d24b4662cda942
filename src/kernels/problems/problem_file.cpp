// SPDX-License-Identifier: Apache-2.0
#include "kernels/problems/problem_file.hpp"

#include <algorithm>
#include <array>
#include <fstream>
#include <functional>
#include <map>
#include <numeric>
#include <sstream>
#include <vector>

#include "core/csv.hpp"
#include "core/error.hpp"
#include "core/format.hpp"
#include "core/name.hpp"

namespace gradmeter::kernels {
namespace {

using core::CsvCell;
using core::CsvFault;
using core::CsvRow;

Transpose transpose_of(const CsvRow& r, const char* name) {
  return r.choice(name, {"N", "T"}) == 1 ? Transpose::yes : Transpose::no;
}

ProblemShape gemm_of(const CsvRow& r) {
  return GemmShape{.m = r.count("m", 1),
                   .n = r.count("n", 1),
                   .k = r.count("k", 1),
                   .transpose_a = transpose_of(r, "trans_a"),
                   .transpose_b = transpose_of(r, "trans_b"),
                   .packed = r.choice("packed", {"no", "yes"}) == 1,
                   .count = r.count("count", 1, 1)};
}
ProblemShape sparse_of(const CsvRow& r) {
  return SparseShape{r.count("m", 1), r.count("n", 1), r.count("k", 1), r.share("sparsity"),
                     static_cast<SparseFormat>(r.choice("format", {"csr", "blocked", "2:4"}))};
}
ProblemShape conv_of(const CsvRow& r) {
  const ConvShape s{.width = r.count("w", 1),
                    .height = r.count("h", 1),
                    .channels = r.count("c", 1),
                    .batch = r.count("n", 1),
                    .filters = r.count("k", 1),
                    .filter_width = r.count("filter_w", 1),
                    .filter_height = r.count("filter_h", 1),
                    .pad_width = r.count("pad_w", 0, 0),
                    .pad_height = r.count("pad_h", 0, 0),
                    .stride_width = r.count("stride_w", 1, 1),
                    .stride_height = r.count("stride_h", 1, 1)};
  if (s.filter_width > s.width + 2 * s.pad_width)
    throw CsvFault{r.begin_byte("filter_w"), "the filter is wider than the image"};
  if (s.filter_height > s.height + 2 * s.pad_height) {
    throw CsvFault{r.begin_byte("filter_h"), "the filter is higher than the image"};
  }
  return s;
}
ProblemShape rnn_of(const CsvRow& r) {
  const std::size_t hidden = r.count("hidden", 1), input = r.count("input", 1, hidden);
  return RnnShape{.cell = static_cast<Cell>(r.choice("cell", {"vanilla", "lstm", "gru"})),
                  .hidden = hidden,
                  .batch = r.count("batch", 1),
                  .steps = r.count("timesteps", 1),
                  .input = input == hidden ? 0 : input};
}
ProblemShape pointwise_of(const CsvRow& r) {
  return PointwiseShape{static_cast<PointwiseKind>(r.choice("kind", {"sgd", "momentum", "adam", "lstm-cell"})),
                        r.count("elements", 1), r.choice("fused", {"yes", "no"}) == 0};
}

/// Reads a shape. Errors: CsvFault.
using ShapeReader = ProblemShape (*)(const CsvRow&);

/// The columns that an operation needs, and the function that reads its shape. A file's problems are of the first
/// operation whose columns the file has.
struct Reader {
  std::vector<const char*> needs;
  ShapeReader read;
};
const std::vector<Reader>& readers() {
  static const std::vector<Reader> readers{
      {{"w", "h", "c", "n", "k", "filter_w", "filter_h"}, conv_of},
      {{"hidden", "batch", "timesteps", "cell"}, rnn_of},
      {{"m", "n", "k", "sparsity"}, sparse_of},
      {{"m", "n", "k"}, gemm_of},
      {{"kind", "elements"}, pointwise_of},
  };
  return readers;
}

Problem problem_of(const CsvRow& r, ShapeReader read) {
  std::vector<std::string_view> types;
  for (const Precision p : precisions()) types.push_back(name(p));
  return {.shape = read(r),
          .pass = static_cast<Pass>(r.choice("pass", {"forward", "backward-data", "backward-weights"})),
          .precision = static_cast<Precision>(r.choice("precision", types)),
          .application = r.text("application")};
}

/// The reader of the first operation whose columns are all among the names. Errors: UsageError when there is none.
ShapeReader shape_reader(const std::vector<std::string>& names, const std::string& file) {
  for (const Reader& r : readers()) {
    if (std::ranges::all_of(r.needs, [&](const char* n) { return std::ranges::count(names, n) > 0; })) return r.read;
  }
  throw core::UsageError(fmt::format(
      "{}: its first line, '{}', names no operation's columns; gemm has m,n,k, conv w,h,c,n,k,filter_w,filter_h, rnn "
      "hidden,batch,timesteps,cell, sparse m,n,k,sparsity, pointwise kind,elements",
      file, fmt::join(names, ",")));
}

constexpr std::array<std::string_view, 3> deepbench_set_names{"training", "server", "device"};

}  // namespace

ProblemList parse_problems(std::string_view text, const std::string& file) {
  ProblemList out;
  ShapeReader read = nullptr;
  out.faults = core::read_csv(
      text, file, [&](const std::vector<std::string>& names) { read = shape_reader(names, file); },
      [&](const CsvRow& row, std::size_t line) {
        out.problems.push_back({problem_of(row, read), line});
      });
  if (!read) throw core::UsageError(fmt::format("{}: holds no problems; its first line must name columns", file));
  return out;
}

ProblemList read_problems(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::stringstream text;
  text << in.rdbuf();
  if (!in) throw core::UsageError(fmt::format("{}: cannot be read; give a CSV file of problems", path));
  return parse_problems(text.str(), path);
}

std::span<const std::string_view> deepbench_sets() { return deepbench_set_names; }

std::vector<Problem> deepbench(KernelKind op, std::string_view set) {
  const std::string_view base = op == KernelKind::sparse ? "sparse_gemm" : name(op);
  const std::string wanted =
      set == "training" ? fmt::format("{}_training", base) : fmt::format("{}_inference_{}", base, set);
  std::vector<Problem> out;
  for (const auto& f : embedded_lists()) {
    if (f.name != wanted) continue;
    for (auto& p : parse_problems(f.text, wanted + ".csv").problems) {
      out.push_back(p.problem);
      if (set != "training" || op == KernelKind::gemm || op == KernelKind::pointwise) continue;
      for (const Pass pass : {Pass::backward_data, Pass::backward_weights}) {
        out.push_back(p.problem);
        out.back().pass = pass;
      }
    }
  }
  return out;
}

namespace {

/// The keys of a shape's text, and their columns in a file where the two differ.
struct Keys {
  KernelKind operation;
  std::string_view batch;  ///< the key of the batch dimension; empty: none
  std::vector<std::string> keys;
  std::map<std::string, std::string> columns;
};
const std::vector<Keys>& all_keys() {
  static const std::vector<Keys> keys{
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
  return keys;
}

const Keys& keys_of(std::string_view operation) {
  std::vector<std::string> names;
  for (const Keys& k : all_keys()) {
    if (name(k.operation) == operation) return k;
    names.emplace_back(name(k.operation));
  }
  core::refuse_unknown("operation", std::string(operation), names);
}

/// Splits "m=1,n=2" into names of columns and values; a batch that is left out is 1.
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
    const std::size_t equals_sign = item.find('=');
    const std::string key(item.substr(0, equals_sign));
    if (equals_sign == std::string_view::npos || std::ranges::find(known.keys, key) == known.keys.end()) {
      throw core::UsageError(fmt::format("'{}': a {} is written KEY=VALUE,... with keys {}", item,
                                         name(known.operation), fmt::join(known.keys, ", ")));
    }
    add(key, std::string(item.substr(equals_sign + 1)));
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
  const Keys& keys = keys_of(text.substr(0, colon));
  std::vector<std::string> names;
  std::vector<CsvCell> values;
  split_shape(text.substr(colon + 1), keys, names, values);
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

namespace {

/// One published time.
struct Entry {
  std::string set, platform, precision;
  bool training;
  Problem problem;
  double seconds;
};

/// "NV_TitanX_Pascal" is titanx-pascal: the maker's letters add nothing.
std::string short_platform(std::string_view platform) {
  for (const std::string_view maker : {"NV_", "AMD_", "IA_"}) {
    if (platform.starts_with(maker)) platform.remove_prefix(maker.size());
  }
  std::string out(platform);
  std::ranges::transform(out, out.begin(), [](char c) {
    return c == '_' ? '-' : c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  return out;
}

std::string short_precision(std::string_view precision) {
  if (precision.starts_with("int8")) return "int8";
  if (precision == "fp16_in_mixed_math") return "mixed";
  return std::string(precision.substr(0, precision.find('_')));
}

struct TimeColumn {
  const char* name;
  Pass pass;
};
constexpr std::array time_columns{TimeColumn{"time_ms", Pass::forward}, TimeColumn{"sparse_time_ms", Pass::forward},
                                  TimeColumn{"fwd_ms", Pass::forward}, TimeColumn{"bwd_inputs_ms", Pass::backward_data},
                                  TimeColumn{"bwd_weights_ms", Pass::backward_weights}};

void read_entries(const core::EmbeddedFile& file, const std::function<void(const Entry&)>& take) {
  ShapeReader read = nullptr;
  const std::string where(file.name);
  const auto faults = core::read_csv(
      file.text, where, [&](const std::vector<std::string>& names) { read = shape_reader(names, where); },
      [&](const CsvRow& row, std::size_t) {
        Entry e{.set = {},
                .platform = row.text("platform"),
                .precision = row.text("precision"),
                .training = row.text("mode") == "train",
                .problem = {.shape = read(row)},
                .seconds = 0};
        e.set = fmt::format("{}-{}", short_platform(e.platform), short_precision(e.precision));
        for (const TimeColumn& t : time_columns) {
          const auto ms = row.number(t.name);
          if (!ms || !(*ms > 0)) continue;
          e.problem.pass = t.pass;
          e.seconds = *ms * 1e-3;
          take(e);
        }
      });
  if (!faults.empty()) throw core::BackendError("gradmeter", "published results", faults.front());
}

void each_entry(const std::function<void(const Entry&)>& take) {
  for (const auto& file : embedded_lists()) {
    // All-reduce is no kernel and has no shape.
    if (file.name.starts_with("published_") && file.name != "published_allreduce") read_entries(file, take);
  }
}

std::string key(const Problem& p) {
  ProblemShape shape = p.shape;
  // Published times do not depend on `packed`: the library was free to choose the layout.
  if (auto* gemm = std::get_if<GemmShape>(&shape)) gemm->packed = false;
  return fmt::format("{} {}", problem_text(shape), name(p.pass));
}

}  // namespace

std::vector<PublishedSet> published_sets() {
  std::map<std::string, PublishedSet> sets;
  each_entry([&](const Entry& e) {
    PublishedSet& s = sets[e.set];
    s.name = e.set;
    s.platform = e.platform;
    s.precision = e.precision;
    const std::array counts{&s.gemm, &s.conv, &s.rnn, &s.sparse};
    ++*counts.at(e.problem.shape.index());
  });
  std::vector<PublishedSet> out;
  for (auto& [name, set] : sets) out.push_back(std::move(set));
  return out;
}

PublishedTimes::PublishedTimes(std::string_view name) : name_(name) {
  each_entry([&](const Entry& e) {
    if (e.set == name_) (e.training ? training_ : inference_).emplace(key(e.problem), e.seconds);
  });
  if (!training_.empty() || !inference_.empty()) return;
  std::vector<std::string> names;
  for (const auto& s : published_sets()) names.push_back(s.name);
  core::refuse_unknown("published results", name_, names);
}

core::Seconds PublishedTimes::find(const Problem& p, bool training) const {
  std::vector<std::string> wanted{key(p)};
  if (p.operation() == KernelKind::rnn && p.pass == Pass::backward_data) {
    Problem weights = p;
    weights.pass = Pass::backward_weights;
    wanted.push_back(key(weights));
  }
  for (const auto* times : {training ? &training_ : &inference_, training ? &inference_ : &training_}) {
    const bool has_all = std::ranges::all_of(wanted, [&](const std::string& k) { return times->contains(k); });
    if (!has_all) continue;
    return {std::accumulate(wanted.begin(), wanted.end(), 0.0,
                            [&](double sum, const std::string& k) { return sum + times->at(k); })};
  }
  return {0};
}

}  // namespace gradmeter::kernels
