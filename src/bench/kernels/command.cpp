// SPDX-License-Identifier: Apache-2.0
// The options of `gradmeter kernels`.
#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "bench/engine/command.hpp"
#include "bench/engine/devices.hpp"
#include "bench/engine/flags.hpp"
#include "bench/engine/measuring.hpp"
#include "bench/engine/output.hpp"
#include "bench/kernels/kernels.hpp"
#include "core/error.hpp"
#include "core/format.hpp"
#include "core/print.hpp"
#include "core/table.hpp"
#include "kernels/cases/kernel_case.hpp"
#include "kernels/problems/problem_file.hpp"
#include "runtime/host/environment.hpp"

namespace gradmeter::bench {

FlagList describe_kernels();

/// The text of --problems FILE; empty without the flag. Called on rank 0, whose node has the file.
/// Errors: UsageError when the file cannot be read.
std::string read_problems_file(const Flags&);

struct KernelRequest {
  KernelOptions options;
  std::vector<std::string> faults;  ///< rows of the file that are left out: "problems.csv:3:7: what is wrong"
};
/// problems: the text that read_problems_file returned. ranks: the number of ranks that will measure. Errors:
/// UsageError of one line.
KernelRequest read_kernel_request(const Flags&, const std::string& problems, int ranks, int default_threads);

namespace {

using core::UsageError;
using kernels::AlgorithmSearch;
using kernels::KernelKind;
using kernels::Pass;

template <class T>
std::vector<T> chosen(const Flags& flags, const char* flag, const std::vector<T>& known) {
  return choose(fmt::format("--{}", flag), flag, flags.text(flag), known, [](T v) { return std::string(name(v)); });
}

std::vector<KernelKind> read_operations(const Flags& flags) {
  return chosen(
      flags, "op",
      std::vector{KernelKind::gemm, KernelKind::conv, KernelKind::rnn, KernelKind::sparse, KernelKind::pointwise});
}

std::vector<std::string_view> read_sets(const Flags& flags) {
  const auto sets = kernels::deepbench_sets();
  if (!flags.has("set")) {
    if (flags.has("problems")) return {};
    return {sets.begin(), sets.end()};
  }
  return choose("--set", "set", flags.text("set"), std::vector<std::string_view>(sets.begin(), sets.end()),
                [](std::string_view s) { return std::string(s); });
}

/// The problems of --shape: each shape in each of `passes`; if these are empty, forward.
std::vector<ChosenProblem> read_shape(const Flags& flags, const std::vector<Pass>& passes) {
  for (const char* other : {"set", "problems", "filter"}) {
    if (flags.has(other)) throw UsageError(fmt::format("--shape gives the problems: leave out --{}", other));
  }
  std::vector<ChosenProblem> out;
  try {
    for (const auto& text : flags.texts("shape")) {
      const auto shape = kernels::parse_shape(text);
      for (const Pass p : passes.empty() ? std::vector{Pass::forward} : passes)
        out.push_back({.problem = {.shape = shape, .pass = p}});
    }
  } catch (const UsageError& e) {
    throw UsageError(fmt::format("--shape: {}", e.what()));
  }
  return out;
}

std::vector<ChosenProblem> read_lists(const Flags& flags, const std::string& text, std::vector<std::string>& faults) {
  std::vector<ChosenProblem> out;
  const auto operations = read_operations(flags);
  for (const KernelKind op : operations) {
    for (const auto set : read_sets(flags)) {
      for (auto& p : kernels::deepbench(op, set)) out.push_back({std::move(p), set == "training"});
    }
  }
  if (!flags.has("problems")) return out;
  auto list = kernels::parse_problems(text, flags.text("problems"));
  faults = std::move(list.faults);
  for (auto& listed : list.problems) {
    const auto op = listed.problem.operation();
    if (std::ranges::find(operations, op) != operations.end()) out.push_back({.problem = std::move(listed.problem)});
  }
  if (out.empty() && !faults.empty()) throw UsageError(fmt::format("{}; no good row is left", faults.front()));
  return out;
}

bool has_deepbench_products(const Flags& flags) {
  if (flags.has("shape") || read_sets(flags).empty()) return false;
  const auto operations = read_operations(flags);
  return std::ranges::find(operations, KernelKind::gemm) != operations.end();
}

std::vector<std::size_t> read_batches(const Flags& flags) {
  const auto most = parse_count("--batch-max", flags.text("batch-max"), 1, 1u << 20);
  if (!flags.has("sweep")) return {};
  check_one_of("--sweep", flags.text("sweep"), {"batch"});
  std::vector<std::size_t> out;
  for (std::size_t b = 1; b <= most; b *= 2) out.push_back(b);
  return out;
}

std::vector<AlgorithmSearch> read_searches(const Flags& flags) {
  auto searches = chosen(flags, "search", std::vector{AlgorithmSearch::estimated, AlgorithmSearch::exhaustive});
  if (flags.text("device") == "cpu" && searches != std::vector{AlgorithmSearch::estimated}) {
    throw UsageError("--search exhaustive: no library of the CPU has a choice of algorithms; add --device cuda");
  }
  return searches;
}

KernelFactors read_factors(const Flags& flags, const std::string& text, std::vector<std::string>& faults) {
  KernelFactors out;
  if (flags.has("pass")) {
    out.passes = chosen(flags, "pass", std::vector{Pass::forward, Pass::backward_data, Pass::backward_weights});
  }
  if (flags.has("precision")) out.precisions = chosen(flags, "precision", kernels::precisions());
  out.caches = chosen(flags, "cache", std::vector{CacheState::hot, CacheState::cold});
  out.searches = read_searches(flags);
  out.problems = flags.has("shape") ? read_shape(flags, out.passes) : read_lists(flags, text, faults);
  if (flags.has("filter")) out.filter = ProblemFilter(flags.text("filter"));
  out.batches = read_batches(flags);
  out.packed = flags.on("packed");
  if (out.packed && has_deepbench_products(flags)) {
    throw UsageError(
        "--packed packs B, and the B of DeepBench's products has the mini-batch, not the weights that inference packs; "
        "give --shape or --problems with the weights as B, or another --op");
  }
  out.repeats = read_repeats(flags);
  return out;
}

}  // namespace

FlagList describe_kernels() {
  FlagList list(heading_of_factors, 110);
  add_switch(list, "help,h", "this text");
  add_text(list, "op", "all", "gemm, conv, rnn, sparse, pointwise");
  add_text(list, "set", "",
           "DeepBench's lists: training (with optimizer updates, --op pointwise), server and device (both inference); "
           "default: all three lists, but none "
           "with --problems or --shape");
  add_text(list, "problems", "",
           "a CSV file of problems; its first line names the columns: m,n,k or w,h,c,n,k,filter_w,…");
  add_texts(
      list, "shape",
      "one problem, as gradmeter list problems writes it: gemm:m=1760,n=16,k=1760,a=N,b=T; may be repeated; formats "
      "of sparse: csr, blocked, 2:4");
  add_text(list, "filter", "", "only problems that have all these values (m=1760,n=16) or contain this text (lstm)");
  add_text(list, "precision", "",
           "fp32 (the default), bf16, int8, lns16, lns16-linear …; on GPUs also fp16, tf32, fp8-e4m3 …; see list "
           "precisions");
  add_text(list, "pass", "", "forward, backward-data, backward-weights; default: the passes of the list");
  add_text(list, "cache", "hot", "hot (one set of operands), cold (many sets in turn, together twice the caches)");
  add_text(list, "search", "estimated",
           "how GPU libraries choose an algorithm: estimated, exhaustive (times all of them first)");
  add_text(list, "sweep", "", "batch: measure mini-batches 1, 2, 4 … instead of the problem's own");
  add_text(list, "batch-max", "256", "largest mini-batch of --sweep");
  add_repeats_flag(list);
  add_switch(
      list, "packed",
      "store B, the right operand of matrix products, in the library's own layout, as inference does weights; not with "
      "--sweep batch or DeepBench's lists, where B has the mini-batch");
  add_text(list, "against", "",
           "published times to compare with: v100-mixed, p100-fp32 …; see gradmeter list published");
  add_text(list, "threads", "", "compute threads of a rank; default: cores of a node / ranks of a node");
  add_switch(list, "solo", "only rank 0 computes; the others sleep");
  add_text(list, "device", "cpu", "what computes: cpu, cuda");
  add_text(list, "check", "1", "check results before and during timing; 0: never");
  add_text(list, "seed", "1", "random seed of the data");
  add_stopping_flags(
      list,
      {.budget = "for all points together: 90s, 10m; default 1 s a point, or longer where its samples take longer",
       .samples = "minimum number of samples for each point"});
  add_rank_flags(list);
  add_text(list, "damage", "", "a rank; for tests: makes one element of each of its results wrong");
  add_switch(list, "dry-run", "only list the points, with their work and memory; measure nothing");
  add_format_flags(list);
  add_output_flags(list);
  return list;
}

std::string read_problems_file(const Flags& flags) {
  if (!flags.has("problems")) return {};
  std::ifstream in(flags.text("problems"), std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(in), {}};
  if (!in || text.empty()) {
    throw UsageError(
        fmt::format("--problems {}: cannot be read, or is empty; give a CSV file", flags.text("problems")));
  }
  return text;
}

KernelRequest read_kernel_request(const Flags& flags, const std::string& problems, int ranks, int default_threads) {
  KernelRequest request;
  auto& o = request.options;
  o.factors = read_factors(flags, problems, request.faults);
  o.threads = flags.has("threads") ? static_cast<int>(parse_count("--threads", flags.text("threads"), 1, 1024))
                                   : default_threads;
  o.check = parse_count("--check", flags.text("check"), 0, 1) == 1;
  read_stopping(flags, o.rule, o.time_budget);
  o.seed = parse_count("--seed", flags.text("seed"), 0, UINT64_MAX);
  if (flags.has("against")) o.against = std::make_shared<kernels::PublishedTimes>(flags.text("against"));
  if (flags.has("damage")) {
    o.error_rank =
        static_cast<int>(parse_count("--damage", flags.text("damage"), 0, static_cast<std::uint64_t>(ranks - 1)));
    if (!o.check) throw UsageError("--damage has no meaning with --check 0: nothing is looked at");
  }
  return request;
}

// gradmeter kernels: DeepBench's operations, and yours, on every rank at once: checked, timed and compared with the
// roofline.

namespace {

void print_faults(const std::vector<std::string>& faults) {
  for (const auto& fault : faults) core::print(stderr, "gradmeter: {}\n", fault);
}

int print_kernels_plan(const Flags& flags) {
  const auto launcher = planned_launcher(flags);
  if (launcher.rank != 0) return 0;
  check_one_of("--device", flags.text("device"), device_names);
  const OpenedDevice opened = open_device(flags.text("device"));
  const runtime::Device& device = opened.device ? *opened.device : runtime::host_device();
  const auto host = runtime::read_host();
  read_format(flags);
  read_output_flags(flags);
  const auto request = read_kernel_request(flags, read_problems_file(flags), launcher.size, 1);
  using enum core::Align;
  core::Table table({{"problem", "", left},
                     {"pass", "", left},
                     {"precision", "", left},
                     {"cache", "", left},
                     {"work", "MFLOP", right},
                     {"operands", "", right},
                     {"memory", "/rank", right}});
  double work = 0;
  std::size_t most_bytes = 0, unsupported = 0;
  const std::size_t caches = all_cache_bytes(host.reached_last_cache_bytes, host.l2_bytes, request.options.threads);
  for (const auto& p : plan_kernels(request.options.factors)) {
    const auto why = kernels::kernel_case_refusal(p.problem, device);
    const auto needs = kernel_memory(p, opened.device ? device.last_cache_bytes() : caches, device);
    const std::size_t memory = opened.device ? needs.device : needs.host;
    table.add_row({kernels::problem_text(p.problem.shape), std::string(name(p.problem.pass)),
                   std::string(name(p.problem.precision)), std::string(name(p.cache)),
                   fmt::format("{:.4g}", flops(p.problem) * 1e-6),
                   core::to_text(core::Bytes{
                       kernels::whole_bytes(opened.device ? native_held_bytes(p.problem) : held_bytes(p.problem))}),
                   why.empty() ? core::to_text(core::Bytes{memory}) : "-"},
                  why.empty() ? "" : fmt::format("unsupported: {}", why));
    unsupported += !why.empty();
    if (why.empty()) work += run_flops(p.problem), most_bytes = std::max(most_bytes, memory);
  }
  core::print("{}\n{}, {} of them unsupported; one call of each is {:.4g} GFLOP; {} a rank at once ({} free here)\n",
              table.to_string(table_width(flags)), report::counted(table.rows(), "point"), unsupported, work * 1e-9,
              core::to_text(core::Bytes{most_bytes}),
              core::to_text(core::Bytes{opened.device ? device.free_bytes() : host.available_memory_bytes}));
  print_faults(request.faults);
  return static_cast<int>(request.faults.empty() ? core::ExitCode::done : core::ExitCode::usage);
}

void print_kernels_head(const Session& s, const KernelPlacement& placement) {
  const auto& info = s.run_info();
  core::print("gradmeter {} ({})  kernels  {} rank{} on {} node{}, {} thread{} each  {}{}\n", info.version, info.commit,
              placement.ranks, placement.ranks == 1 ? "" : "s", placement.nodes, placement.nodes == 1 ? "" : "s",
              placement.threads, placement.threads == 1 ? "" : "s", info.cpu,
              placement.device == "cpu" ? "" : ", computing on " + placement.device);
}

/// Prints the line of limits: "roofline of the slowest rank: fp32 151 GFLOP/s, …".
void print_limits(KernelLimits& limits, const std::vector<kernels::Precision>& precisions) {
  std::string text;
  for (const auto p : precisions) {
    const auto peak = limits.peak(p);
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name(p),
                        peak.value > 0 ? core::to_text(peak) : "of unknown peak");
  }
  for (const auto& l : limits.levels()) {
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", l.name, core::to_text(l.rate));
  }
  core::print("roofline of the slowest rank while all work: {}\n\n", text);
  std::fflush(stdout);
}

/// Called after the measurement. Rows of --problems that were left out are then reported as a usage error.
core::ExitCode end_with(const std::vector<std::string>& faults) {
  if (faults.empty()) return core::ExitCode::done;
  core::print(stderr, "gradmeter: {} row{} of --problems left out: see above\n", faults.size(),
              faults.size() == 1 ? " was" : "s were");
  return core::ExitCode::usage;
}

/// Runs `work` on all ranks. If solo, only rank 0 runs it; the others sleep meanwhile, and then return its exit code or
/// throw its error.
int run_on_ranks(Session& session, bool solo, const std::function<int(const runtime::Communicator&)>& work) {
  const auto& world = session.world();
  if (!solo || world.size() == 1) return work(world);
  const auto alone = world.split(world.rank() == 0 ? 0 : -1, 0);
  int code = 0, signal = 0;
  std::string refusal;
  {
    const runtime::Pause sitting_out(session.activity());
    try {
      if (!alone.is_null()) code = work(alone);
    } catch (const core::Interrupted& e) {
      signal = e.signal();
    } catch (const core::UsageError& e) {
      refusal = e.what();
    }
    world.sleeping_barrier();
  }
  signal = world.broadcast_value(signal);
  if (signal) throw core::Interrupted(signal);
  refusal = world.broadcast_text(refusal);
  if (!refusal.empty()) throw core::UsageError(refusal);
  return world.broadcast_value(code);
}

int measure_kernels(const Flags& flags, const Invocation& invocation) {
  const auto session = open_session(flags, invocation);
  const auto& world = session->world();
  std::string problems;
  run_on_rank_0(world, [&] { problems = read_problems_file(flags); });
  problems = world.broadcast_text(problems);
  const int ranks = flags.on("solo") ? 1 : world.size();
  const int threads = std::max(1, session->cores_per_node() / session->ranks_per_node(ranks));
  const auto request = read_kernel_request(flags, problems, ranks, threads);
  const auto& options = request.options;
  const std::size_t points = plan_kernels(options.factors).size();  // refuses a plan without points
  const bool prints_limits = read_format(flags) == Format::table && !session->device().is_emulated();
  return run_on_ranks(*session, flags.on("solo"), [&](const runtime::Communicator& c) {
    if (session->is_root()) print_faults(request.faults);
    return measure(measuring_ranks(*session, &c), flags, invocation,
                   {.experiment = "kernels",
                    .points = points,
                    .printers = {kernel_tables, kernel_csv()},
                    .head = [&] { print_kernels_head(*session, placement_of(*session, c, options.threads)); },
                    .measure =
                        [&](const auto& finished, const auto& rows) {
                          const auto limits = [&](KernelLimits& found, const auto& precisions) {
                            if (prints_limits) print_limits(found, precisions);
                          };
                          return run_kernels(*session, c, options, finished, {.limits = limits, .rows = rows});
                        },
                    .legend = [&](auto) { return kernel_legend(read_legend(flags)); },
                    .end = [&](auto) { return end_with(request.faults); }});
  });
}

Usage kernels_usage() {
  return {
      .flags = describe_kernels(),
      .about =
          "gradmeter kernels: DeepBench's operations and yours on every rank at once, checked against float64, timed,\n"
          "and compared with the roofline of the same run\n"
          "\n"
          "gradmeter kernels --op gemm --set training --precision fp32,bf16 --out r.jsonl\n"
          "mpirun -np 4 gradmeter kernels --op conv --filter Resnet --cache hot,cold"};
}

int run_kernels_command(const Flags& flags, const Invocation& invocation) {
  return flags.on("dry-run") ? print_kernels_plan(flags) : measure_kernels(flags, invocation);
}

}  // namespace

extern const Command kernels_command{.name = "kernels",
                                     .summary = "DeepBench's operations and yours on every rank, against the roofline",
                                     .with_ranks = true,
                                     .usage = kernels_usage,
                                     .run = run_kernels_command};

}  // namespace gradmeter::bench
