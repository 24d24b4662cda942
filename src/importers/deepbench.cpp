// SPDX-License-Identifier: Apache-2.0
// The tables that DeepBench's programs print. Programs of different vendors have different columns, but all name them,
// so rows are read by the names in the head above them.
#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <utility>

#include "core/error.hpp"
#include "core/format.hpp"
#include "core/name.hpp"
#include "importers/collectives.hpp"
#include "importers/importers.hpp"
#include "importers/rows.hpp"
#include "kernels/problems/problem_file.hpp"

namespace gradmeter::importers {
namespace {

using core::Factor;
using core::Metric;

/// A table's head: names without their units, which are units of times.
struct BenchTable {
  std::vector<std::string> columns;
  double unit = 1e-6;      ///< unit of times [s]
  std::string algorithm;   ///< the algorithm of all-reduces
  std::int64_t ranks = 0;  ///< the ranks of all-reduces
  bool has(std::string_view name) const { return std::ranges::find(columns, name) != columns.end(); }
};

/// "# of floats  bytes transferred  Avg Time (msec)" as floats, bytes, avg_time; "sparse time (usec)" as sparse_time.
std::vector<std::string> bench_columns(std::string_view line) {
  std::vector<std::string> out;
  std::string prefix;
  for (const std::string& word : words_of(line)) {
    const std::string name = core::lower(word);
    if (name == "#" || name == "of" || name == "transferred" || name.starts_with('(')) continue;
    if (name == "avg" || name == "max" || name == "sparse" || name == "dense") {
      prefix = name + "_";
      continue;
    }
    out.push_back(prefix + name);
    prefix.clear();
  }
  return out;
}

/// A row's cells by their columns. "Not Supported" is one cell of two words; the last column, the algorithm, may be
/// empty.
std::map<std::string, std::string> bench_cells(std::string_view line, std::size_t number, const BenchTable& table) {
  std::vector<std::string> words = words_of(line);
  for (std::size_t i = 0; i + 1 < words.size(); ++i) {
    if (words[i] != "Not" || words[i + 1] != "Supported") continue;
    words[i] = "Not Supported";
    words.erase(words.begin() + static_cast<std::ptrdiff_t>(i) + 1);
  }
  const bool may_lack_last = table.columns.back() == "fwd_algo";
  if (words.size() + (may_lack_last ? 1 : 0) < table.columns.size())
    refuse_columns(number, words.size(), table.columns.size());
  if (words.size() > table.columns.size()) refuse_columns(number, words.size(), table.columns.size());
  std::map<std::string, std::string> cells;
  for (std::size_t i = 0; i < words.size(); ++i) cells[table.columns[i]] = words[i];
  return cells;
}

struct BenchRow {
  std::map<std::string, std::string> cells;
  std::size_t number;
  const std::string& at(const std::string& name) const {
    const auto found = cells.find(name);
    if (found == cells.end()) refuse_line(number, fmt::format("the table has no column '{}'", name));
    return found->second;
  }
  std::int64_t count(const std::string& name) const { return count_of(at(name), number); }
  bool has(const std::string& name) const { return cells.contains(name); }
};

/// NVIDIA's programs print 1 and 0 for t and n: `cout << a_t ? "t" : "n"` prints a_t.
char transpose_letter(const BenchRow& row, const char* name) {
  const std::string& word = row.at(name);
  if (word == "t" || word == "1") return 'T';
  if (word == "n" || word == "0") return 'N';
  refuse_line(row.number, fmt::format("'{}' is neither t, n, 1 nor 0", word));
}

std::string bench_problem(const BenchRow& row) {
  if (row.has("sparsity"))
    return fmt::format("sparse:m={},n={},k={},sparsity={}", row.count("m"), row.count("n"), row.count("k"),
                       number_of(row.at("sparsity"), row.number));
  if (row.has("a_t"))
    return fmt::format("gemm:m={},n={},k={},a={},b={}", row.count("m"), row.count("n"), row.count("k"),
                       transpose_letter(row, "a_t"), transpose_letter(row, "b_t"));
  if (row.has("stride_w"))
    return fmt::format("conv:w={},h={},c={},n={},k={},fw={},fh={},pw={},ph={},sw={},sh={}", row.count("w"),
                       row.count("h"), row.count("c"), row.count("n"), row.count("k"), row.count("f_w"),
                       row.count("f_h"), row.count("pad_w"), row.count("pad_h"), row.count("stride_w"),
                       row.count("stride_h"));
  const bool by_amd = row.has("rnn_type");
  return fmt::format("rnn:cell={},hidden={},batch={},steps={}", row.at(by_amd ? "rnn_type" : "type"),
                     row.count(by_amd ? "hidden_size" : "hidden"), row.count(by_amd ? "batch_size" : "n"),
                     row.count(by_amd ? "time_steps" : "timesteps"));
}

kernels::ProblemShape bench_shape(const BenchRow& row) {
  try {
    return kernels::parse_shape(bench_problem(row));
  } catch (const core::UsageError& e) {
    const std::string why = e.what();
    if (why.starts_with("line ")) throw;
    refuse_line(row.number, why);
  }
}

std::string bench_precision(const BenchRow& row) {
  const std::string& name = row.at("precision");
  static const std::map<std::string, std::string, std::less<>> known{
      {"float", "fp32"}, {"half", "fp16"}, {"int8", "int8"}, {"uint8_t", "int8"}};
  const auto found = known.find(name);
  if (found == known.end()) refuse_line(row.number, fmt::format("'{}' is no precision of DeepBench", name));
  return found->second;
}

/// Adds a point for each pass whose time the table has.
void add_kernel_points(const BenchRow& row, const BenchTable& table, const UserFacts& user_facts,
                       std::vector<core::Point>& out, Faults& faults) {
  using enum kernels::Pass;
  const kernels::ProblemShape shape = bench_shape(row);
  for (const auto& [column, pass] : {std::pair{"time", forward},
                                     {"fwd_time", forward},
                                     {"sparse_time", forward},
                                     {"bwd_inputs_time", backward_data},
                                     {"bwd_params_time", backward_weights}}) {
    if (!row.has(column)) continue;
    core::Point p;
    p.experiment = "kernels";
    p.factors[Factor::problem] = kernels::problem_text(shape);
    p.factors[Factor::pass] = std::string(kernels::name(pass));
    if (row.has("precision")) p.factors[Factor::precision] = bench_precision(row);
    if (user_facts.ranks > 0) p.factors[Factor::ranks] = user_facts.ranks;
    // Backward times in such a row are those of the row before.
    if (row.at(row.has("fwd_time") ? "fwd_time" : column) == "Not Supported") {
      p.status = core::Status::unsupported;
      p.reason = "DeepBench says: not supported";
    } else {
      const double seconds = number_of(row.at(column), row.number) * table.unit;
      // Times are whole microseconds, so a short kernel's may be 0.
      if (!(seconds > 0)) {
        ++faults.without_time;
        continue;
      }
      p.metrics[Metric::time_s] = summary_of_mean(seconds);
      p.metrics[Metric::flops_per_s] = kernels::flops({.shape = shape, .pass = pass}) / seconds;
    }
    out.push_back(std::move(p));
  }
}

/// The point of an all-reduce's row; none if the row has no time.
std::optional<core::Point> all_reduce_point(const BenchRow& row, const BenchTable& table, const UserFacts& user_facts,
                                            Faults& faults) {
  constexpr std::int64_t float_bytes = 4, most = std::int64_t{1} << 60;
  const std::int64_t floats = row.count("floats");
  if (floats == 0 || floats > most / float_bytes) refuse_line(row.number, fmt::format("'{}' is no size", floats));
  core::Point p = collective_point("allreduce", table.ranks, floats * float_bytes, user_facts);
  const bool over_ranks = row.has("max_time");
  const double seconds = number_of(row.at(over_ranks ? "max_time" : "time"), row.number) * table.unit;
  if (!(seconds > 0)) {
    ++faults.without_time;
    return std::nullopt;
  }
  set_time_and_rates(p, seconds);
  if (row.has("bytes") && row.count("bytes") != floats * float_bytes)
    mistrust(p, fmt::format("{} floats are not {} bytes", floats, row.count("bytes")), faults);
  if (over_ranks && row.has("avg_time"))
    check_order(p, 0, number_of(row.at("avg_time"), row.number) * table.unit, seconds, faults);
  p.factors[Factor::dtype] = "fp32";
  p.factors[Factor::op] = "sum";
  if (over_ranks) p.factors[Factor::reduction] = "max";
  if (!table.algorithm.empty()) p.factors[Factor::algorithm] = table.algorithm;
  return p;
}

/// True if the line is a table's head, which then replaces the last one.
bool read_bench_head(std::string_view line, std::size_t number, BenchTable& table) {
  const auto words = words_of(line);
  if (line.find(" AllReduce ") != std::string_view::npos)
    table = {.columns = {}, .algorithm = words[0] == "NCCL" ? "nccl" : "baidu-ring"};
  if (words.size() > 2 && words[0] == "Num" && words[1] == "Ranks:") table.ranks = count_of(words[2], number);
  const auto columns = bench_columns(line);
  const auto named = [&](std::string_view name) { return std::ranges::find(columns, name) != columns.end(); };
  if (!named("a_t") && !named("stride_w") && !named("timesteps") && !named("time_steps") && !named("floats"))
    return false;
  // without a title of its own, a table does not tell its ranks
  if (!named("floats") || !table.columns.empty()) table = {};
  table.columns = columns;
  const auto units = units_of(line);
  table.unit = units.empty() ? 1e-6 : unit_seconds(units.front(), number);
  return true;
}

bool is_deepbench(std::string_view log) {
  for (const std::string_view head : {"a_t ", "stride_w ", "timesteps ", "time_steps ", "bytes transferred "}) {
    const std::size_t at = log.find(head);
    if (at == std::string_view::npos) continue;
    const std::string_view rest = log.substr(at, log.substr(at).find('\n'));
    if (rest.find("sec)") != std::string_view::npos) return true;
  }
  return false;
}

Imported read_deepbench(std::string_view log, const UserFacts& user_facts) {
  Imported out;
  BenchTable table;
  LogReader reader(log, deepbench_format.name);
  reader.each_line([&](std::string_view line, std::size_t number) {
    if (read_bench_head(line, number, table)) return reader.end_rows();
    const auto words = words_of(line);
    if (words.empty() || table.columns.empty() || words[0].starts_with('-')) return;
    if (table.has("floats")) checked_ranks(table.ranks, user_facts, number);
    // Rows begin with a number or with the type of a recurrent cell; no other output between them does.
    const bool begins = begins_with_count(line) || words[0] == "vanilla" || words[0] == "lstm" || words[0] == "gru";
    reader.add_row(line, number, begins, [&](std::string_view text, bool) {
      const BenchRow row{bench_cells(text, number, table), number};
      std::vector<core::Point> points;
      if (table.has("floats")) {
        if (auto p = all_reduce_point(row, table, user_facts, reader.faults)) points.push_back(std::move(*p));
      } else {
        add_kernel_points(row, table, user_facts, points, reader.faults);
      }
      std::ranges::move(points, std::back_inserter(out.run().points));
    });
  });
  reader.finish(out);
  out.run().info.version = "DeepBench";
  out.not_stated = "the spread of times (each is a mean), whether results were right, on what it ran";
  return out;
}

}  // namespace

const Format deepbench_format{
    .name = "deepbench",
    .about = "its tables of products, convolutions, recurrent layers, sparse products and all-reduces",
    .source = "baidu-research/DeepBench, code/{nvidia,amd,arm,baidu_allreduce}",
    .recognises = is_deepbench,
    .read = read_deepbench};

}  // namespace gradmeter::importers
