#include "cli/flags/kernels_flags.hpp"

#include <fstream>
#include <iterator>

#include "cli/output.hpp"
#include "cli/row_output.hpp"
#include "core/error.hpp"
#include "core/format.hpp"
#include "kernels/problems/problem_file.hpp"
#include "kernels/problems/problem_text.hpp"

namespace gradmeter::cli {
namespace {

using core::UsageError;
using kernels::AlgorithmSearch;
using kernels::KernelKind;
using kernels::Pass;

template <class T>
std::vector<T> chosen(const Flags& f, const char* flag, const std::vector<T>& known) {
  return choose(fmt::format("--{}", flag), flag, f.text(flag), known, [](T v) { return std::string(name(v)); });
}

std::vector<KernelKind> read_operations(const Flags& f) {
  return chosen(
      f, "op",
      std::vector{KernelKind::gemm, KernelKind::conv, KernelKind::rnn, KernelKind::sparse, KernelKind::pointwise});
}

std::vector<std::string_view> read_sets(const Flags& f) {
  const auto known = kernels::deepbench_sets();
  if (!f.has("set")) {
    if (f.has("problems")) return {};
    return {known.begin(), known.end()};
  }
  return choose("--set", "set", f.text("set"), std::vector<std::string_view>(known.begin(), known.end()),
                [](std::string_view s) { return std::string(s); });
}

/// One shape, in the passes that are asked for; forward unless some are.
std::vector<bench::ChosenProblem> read_shape(const Flags& f, const std::vector<Pass>& passes) {
  for (const char* other : {"set", "problems", "filter"}) {
    if (f.has(other)) throw UsageError(fmt::format("--shape gives the one problem: leave out --{}", other));
  }
  std::vector<bench::ChosenProblem> out;
  try {
    const auto shape = kernels::parse_shape(f.text("shape"));
    for (const Pass p : passes.empty() ? std::vector{Pass::forward} : passes) {
      out.push_back({.problem = {.shape = shape, .pass = p}});
    }
  } catch (const UsageError& e) {
    throw UsageError(fmt::format("--shape: {}", e.what()));
  }
  return out;
}

std::vector<bench::ChosenProblem> read_lists(const Flags& f, const std::string& text,
                                             std::vector<std::string>& faults) {
  std::vector<bench::ChosenProblem> out;
  const auto operations = read_operations(f);
  for (const KernelKind op : operations) {
    for (const auto set : read_sets(f)) {
      for (auto& p : kernels::deepbench(op, set)) out.push_back({std::move(p), set == "training"});
    }
  }
  if (!f.has("problems")) return out;
  auto list = kernels::parse_problems(text, f.text("problems"));
  faults = std::move(list.faults);
  for (auto& listed : list.problems) {
    const auto op = listed.problem.operation();
    if (std::ranges::find(operations, op) != operations.end()) out.push_back({.problem = std::move(listed.problem)});
  }
  if (out.empty() && !faults.empty()) throw UsageError(fmt::format("{}; no good row is left", faults.front()));
  return out;
}

std::vector<std::size_t> read_batches(const Flags& f) {
  const auto most = parse_count("--batch-max", f.text("batch-max"), 1, 1u << 20);
  if (!f.has("sweep")) return {};
  check_only("--sweep", f.text("sweep"), {"batch"});
  std::vector<std::size_t> out;
  for (std::size_t b = 1; b <= most; b *= 2) out.push_back(b);
  return out;
}

std::vector<AlgorithmSearch> read_searches(const Flags& f) {
  auto searches = chosen(f, "search", std::vector{AlgorithmSearch::estimated, AlgorithmSearch::exhaustive});
  if (f.text("device") == "cpu" && searches != std::vector{AlgorithmSearch::estimated}) {
    throw UsageError("--search exhaustive: no library of the CPU has a choice of algorithms; add --device cuda");
  }
  return searches;
}

bench::KernelFactors read_factors(const Flags& f, const std::string& text, std::vector<std::string>& faults) {
  bench::KernelFactors out;
  if (f.has("pass")) {
    out.passes = chosen(f, "pass", std::vector{Pass::forward, Pass::backward_data, Pass::backward_weights});
  }
  if (f.has("precision")) out.precisions = chosen(f, "precision", kernels::precisions());
  out.caches = chosen(f, "cache", std::vector{bench::CacheState::hot, bench::CacheState::cold});
  out.searches = read_searches(f);
  out.problems = f.has("shape") ? read_shape(f, out.passes) : read_lists(f, text, faults);
  if (f.has("filter")) out.filter = bench::ProblemFilter(f.text("filter"));
  out.batches = read_batches(f);
  out.packed = f.on("packed");
  return out;
}

}  // namespace

options::options_description describe_kernels() {
  options::options_description d("Flags (a comma list makes a factor; all gives every value there is)", 110);
  d.add_options()("help,h", "this text");
  add_text(d, "op", "all", "gemm, conv, rnn, sparse, pointwise");
  add_text(d, "set", "", "DeepBench's lists: training, server, device (of inference); default all, unless --problems");
  add_text(d, "problems", "", "a CSV file of problems; its first line names columns: m,n,k or w,h,c,n,k,filter_w,…");
  add_text(d, "shape", "",
           "one problem: gemm:m=1760,n=16,k=1760,a=N,b=T, as tables and gradmeter list problems write it; formats of "
           "sparse: csr, blocked, 2:4");
  add_text(d, "filter", "", "only problems that hold all of these: m=1760,n=16; or any part of their text: lstm");
  add_text(d, "precision", "", "fp32 (the default), bf16, int8, lns16, lns16-linear");
  add_text(d, "pass", "", "forward, backward-data, backward-weights; default those of the list");
  add_text(d, "cache", "hot", "hot (one set of operands), cold (sets that together are twice the last cache)");
  add_text(d, "search", "estimated",
           "how the GPU's libraries choose algorithms: estimated, exhaustive (time all they name, before)");
  add_text(d, "sweep", "", "batch: mini-batches 1, 2, 4 … instead of each problem's own");
  add_text(d, "batch-max", "256", "the largest of them");
  add_switch(d, "packed", "weights of products in the library's own layout, as inference has them");
  add_text(d, "against", "", "published times beside ours: v100-mixed, p100-fp32 …; see gradmeter list published");
  add_text(d, "threads", "", "compute threads a rank; default cores a node / ranks a node");
  add_switch(d, "solo", "only rank 0 computes, the others sleep");
  add_text(d, "device", "cpu", "what computes: cpu, cuda");
  add_text(d, "check", "1", "check results before timing; 0: not at all");
  add_text(d, "seed", "1", "of the random data");
  add_text(d, "time-budget", "", "for all points together: 90s, 10m; default 1 s a point and at least 6 calls");
  add_text(d, "min-samples", "10", "samples a point at least");
  add_text(d, "precision-goal", "0.025", "half width of the median's 95 % interval, relative, at which a point stops");
  add_rank_flags(d);
  add_text(d, "damage", "", "test hook: one element of every result on this rank is made wrong");
  add_switch(d, "dry-run", "say which points, how much work, how much memory; measure nothing");
  add_format_flags(d);
  add_output_flags(d);
  return d;
}

std::string read_problems_file(const Flags& f) {
  if (!f.has("problems")) return {};
  std::ifstream in(f.text("problems"), std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(in), {}};
  if (!in || text.empty()) {
    throw UsageError(fmt::format("--problems {}: cannot be read, or is empty; give a CSV file", f.text("problems")));
  }
  return text;
}

KernelRequest read_kernel_request(const Flags& f, const std::string& problems, int ranks, int default_threads) {
  KernelRequest r;
  auto& o = r.options;
  o.factors = read_factors(f, problems, r.faults);
  o.threads =
      f.has("threads") ? static_cast<int>(parse_count("--threads", f.text("threads"), 1, 1024)) : default_threads;
  o.check = parse_count("--check", f.text("check"), 0, 1) == 1;
  if (f.has("time-budget")) o.time_budget = parse_time("--time-budget", f.text("time-budget"));
  o.rule.min_samples = parse_count("--min-samples", f.text("min-samples"), 3, 1'000'000);
  o.rule.relative_half_width = parse_number("--precision-goal", f.text("precision-goal"), 1e-4, 1);
  o.seed = parse_count("--seed", f.text("seed"), 0, UINT64_MAX);
  if (f.has("against")) o.against = std::make_shared<kernels::PublishedTimes>(f.text("against"));
  if (f.has("damage")) {
    o.error_rank =
        static_cast<int>(parse_count("--damage", f.text("damage"), 0, static_cast<std::uint64_t>(ranks - 1)));
    if (!o.check) throw UsageError("--damage has no meaning with --check 0: nothing is looked at");
  }
  return r;
}

}  // namespace gradmeter::cli
