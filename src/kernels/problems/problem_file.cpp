#include "kernels/problems/problem_file.hpp"

#include <algorithm>
#include <array>
#include <fstream>
#include <sstream>

#include "core/error.hpp"
#include "core/format.hpp"
#include "kernels/problems/problem_columns.hpp"

namespace gradmeter::kernels {
namespace {

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
    throw CsvFault{r.column("filter_w"), "the filter is wider than the image"};
  if (s.filter_height > s.height + 2 * s.pad_height) {
    throw CsvFault{r.column("filter_h"), "the filter is higher than the image"};
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

/// An operation is the first whose columns are all there.
struct Reader {
  std::vector<const char*> needs;
  ShapeReader read;
};
const std::vector<Reader>& readers() {
  static const std::vector<Reader> all{
      {{"w", "h", "c", "n", "k", "filter_w", "filter_h"}, conv_of},
      {{"hidden", "batch", "timesteps", "cell"}, rnn_of},
      {{"m", "n", "k", "sparsity"}, sparse_of},
      {{"m", "n", "k"}, gemm_of},
      {{"kind", "elements"}, pointwise_of},
  };
  return all;
}

Problem problem_of(const CsvRow& r, ShapeReader read) {
  std::vector<std::string_view> types;
  for (const Precision p : precisions()) types.push_back(name(p));
  return {.shape = read(r),
          .pass = static_cast<Pass>(r.choice("pass", {"forward", "backward-data", "backward-weights"})),
          .precision = static_cast<Precision>(r.choice("precision", types)),
          .application = r.text("application")};
}

constexpr std::array<std::string_view, 3> sets{"training", "server", "device"};

}  // namespace

ShapeReader shape_reader(const std::vector<std::string>& names, const std::string& file) {
  for (const Reader& r : readers()) {
    if (std::ranges::all_of(r.needs, [&](const char* n) { return std::ranges::count(names, n) > 0; })) return r.read;
  }
  throw core::UsageError(fmt::format(
      "{}: its first line, '{}', names no operation's columns; gemm has m,n,k, conv w,h,c,n,k,filter_w,filter_h, rnn "
      "hidden,batch,timesteps,cell, sparse m,n,k,sparsity, pointwise kind,elements",
      file, fmt::join(names, ",")));
}

ProblemList parse_problems(std::string_view text, const std::string& file) {
  ProblemList out;
  ShapeReader read = nullptr;
  out.faults = read_csv(
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

std::span<const std::string_view> deepbench_sets() { return sets; }

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

}  // namespace gradmeter::kernels
