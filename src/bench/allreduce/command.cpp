// SPDX-License-Identifier: Apache-2.0
// Flags of the collective sweep: nccl-tests' names where it has them.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <vector>

#include "allreduce/selection/size_table.hpp"
#include "bench/allreduce/allreduce.hpp"
#include "bench/allreduce/goal.hpp"
#include "bench/engine/command.hpp"
#include "bench/engine/devices.hpp"
#include "bench/engine/flags.hpp"
#include "bench/engine/measuring.hpp"
#include "bench/engine/output.hpp"
#include "compression/registry.hpp"
#include "core/error.hpp"
#include "core/format.hpp"
#include "core/name.hpp"
#include "core/print.hpp"
#include "core/result.hpp"
#include "core/table.hpp"
#include "report/cells.hpp"
#include "runtime/clock.hpp"
#include "runtime/host/environment.hpp"
#include "runtime/mpi/session.hpp"

namespace gradmeter::bench {

FlagList describe_allreduce();
/// Everything that the flags alone decide; the same on every rank. `threads`: of the matrix product that overlaps the
/// exchange. Errors: UsageError of one line.
CollectiveOptions read_collective_options(const Flags&, int ranks, int threads);
/// By rank; empty: real nodes. `ranks` 0: as many as are named. Errors: UsageError.
std::vector<int> read_fake_nodes(const Flags&, int ranks);

// Writes what a sweep has measured as a table for --algorithm auto:table=FILE.

/// Errors: UsageError when the factors do not make one table (one all-reduce, datatype, operation, transport, kind of
/// buffers and placement), or when the file exists.
void check_measured_table(const std::string& path, const CollectiveOptions&);

/// The fastest algorithm of every size, with the machine and the conditions as comments.
/// Errors: BackendError when the file cannot be written; UsageError when no point was measured.
void write_measured_table(const std::string& path, std::span<const core::Point>, const core::RunInfo&);

namespace {

using core::UsageError;

std::vector<std::size_t> read_collective_sizes(const Flags& f) {
  if (f.has("set")) {
    check_only("--set", f.text("set"), {"deepbench"});
    if (f.has("sizes")) throw UsageError("give one of --set and --sizes");
    return deepbench_sizes();
  }
  if (f.has("sizes")) {
    std::vector<std::size_t> out;
    for (const auto& item : split_list("--sizes", f.text("sizes"))) out.push_back(parse_size("--sizes", item));
    return out;
  }
  const std::size_t step = f.has("stepbytes") ? parse_size("--stepbytes", f.text("stepbytes")) : 0;
  if (f.has("stepbytes") && step == 0) throw UsageError("--stepbytes 0: the sweep would never end; give at least 1");
  return sweep_sizes(parse_size("--minbytes", f.text("minbytes")), parse_size("--maxbytes", f.text("maxbytes")), step,
                     parse_number("--stepfactor", f.text("stepfactor"), 1, 1e6));
}

template <class T, class NameOf>
std::vector<T> choose_from(const std::string& flag, std::string_view what, const std::string& text,
                           std::span<const T> all, NameOf name_of) {
  return choose<T>(flag, what, text, std::vector<T>(all.begin(), all.end()), name_of);
}

std::vector<const CollectiveInfo*> read_collectives(const Flags& f) {
  std::vector<const CollectiveInfo*> all;
  for (const auto& c : collectives()) all.push_back(&c);
  return choose("--collective", "collective", f.text("collective"), all,
                [](const auto* c) { return std::string(c->name); });
}

std::vector<allreduce::Op> read_ops(const Flags& f) {
  using enum allreduce::Op;
  return choose("--op", "operation", f.text("op"), std::vector{sum, product, min, max, average},
                [](auto op) { return std::string(allreduce::name(op)); });
}

std::vector<core::Element> read_elements(const Flags& f) {
  std::vector<core::Element> out;
  const auto add = [&](core::Element e) {
    if (std::find(out.begin(), out.end(), e) == out.end()) out.push_back(e);
  };
  for (const auto& item : split_list("--datatype", f.text("datatype"))) {
    if (item == "all") {
      for (const auto& e : core::elements) add(e.element);
    } else {
      add(core::parse_element(item));
    }
  }
  return out;
}

std::vector<Reduction> read_reductions(const Flags& f) {
  constexpr std::array as_nccl{Reduction::rank0, Reduction::average, Reduction::min, Reduction::max};
  if (f.has("reduction") && f.has("average")) throw UsageError("give one of --average and --reduction");
  if (f.has("average")) return {as_nccl.at(parse_count("--average", f.text("average"), 0, 3))};
  if (!f.has("reduction")) return {Reduction::max};
  return choose_from("--reduction", "reduction", f.text("reduction"), reductions(),
                     [](auto r) { return std::string(name(r)); });
}

std::vector<bool> read_placements(const Flags& f) {
  std::vector<bool> out;
  for (const auto& item : split_list("--in-place", f.text("in-place"))) {
    if (item != "out" && item != "in" && item != "both" && item != "all") {
      core::refuse_unknown("in-place", item, std::vector<std::string>{"both", "in", "out"});
    }
    for (const bool in : {false, true}) {
      const bool wanted = item == "both" || item == "all" || (item == "in") == in;
      if (wanted && std::find(out.begin(), out.end(), in) == out.end()) out.push_back(in);
    }
  }
  return out;
}

std::vector<bool> read_accumulation(const Flags& f) {
  const auto names = choose("--accum-dtype", "accumulation type", f.text("accum-dtype"),
                            std::vector<std::string>{"same", "fp32"}, [](const auto& n) { return n; });
  std::vector<bool> out;
  for (const auto& n : names) out.push_back(n == "fp32");
  return out;
}

std::vector<int> read_roots(const Flags& f, int ranks) {
  std::vector<int> out;
  const auto most = static_cast<std::uint64_t>(ranks - 1);
  if (f.text("root") == "all") {
    for (int r = 0; r < ranks; ++r) out.push_back(r);
    return out;
  }
  for (const auto r : parse_counts("--root", f.text("root"), 0, most)) out.push_back(static_cast<int>(r));
  return out;
}

core::Injection read_injection(const std::string& text, int ranks, const CollectiveOptions& o) {
  const auto injection = core::parse_injection(text);
  injection.check_ranks(ranks);
  injection.check_lasting();
  const bool clocks_matter = std::ranges::count(o.reductions, Reduction::span) > 0 ||
                             std::ranges::count(o.cadences, runtime::Cadence::window) > 0;
  if (injection.drift && !clocks_matter) {
    throw UsageError("--inject drift: these points compare no clocks; take --reduction span or --cadence window");
  }
  return injection;
}

void refuse_overlap_on_a_device(const Flags& f) {
  if (f.text("device") != "cpu" && f.text("overlap") != "none")
    throw UsageError(
        "--overlap: the product beside an exchange runs on the host; take --overlap none with --device cuda");
}

/// `all` are those of the device.
std::vector<BufferKind> read_buffers(const Flags& f) {
  const auto is_of_gpus = [](BufferKind b) { return b == BufferKind::registered; };
  std::vector<BufferKind> known(buffer_kinds().begin(), buffer_kinds().end());
  if (f.text("device") == "cpu" && f.text("buffers") == "all") std::erase_if(known, is_of_gpus);
  auto chosen = choose("--buffers", "buffers", f.text("buffers"), known, [](auto b) { return std::string(name(b)); });
  if (f.text("device") == "cpu" && std::ranges::any_of(chosen, is_of_gpus))
    throw UsageError("--buffers registered: NCCL registers memory of a GPU; it needs --device cuda");
  return chosen;
}

/// 0: not captured.
std::vector<std::size_t> read_cudagraphs(const Flags& f) {
  std::vector<std::size_t> out;
  for (const auto& item : split_list("--cudagraph", f.text("cudagraph"))) {
    const std::size_t launches = item == "none" ? 0 : parse_count("--cudagraph", item, 0, 1'000'000);
    if (std::ranges::count(out, launches) == 0) out.push_back(launches);
  }
  if (f.given("cudagraph") && f.text("device") == "cpu")
    throw UsageError("--cudagraph captures calls on a GPU: it needs --device cuda; leave it out");
  return out;
}

/// Reads the flags that hold lists: the factors that points are planned from.
CollectiveOptions read_factors(const Flags& f, int ranks, int threads) {
  CollectiveOptions o;
  o.collectives = read_collectives(f);
  o.algorithms = parse_algorithms(f.text("algorithm"));
  o.codecs = compression::as_timed(naming_flag("--codec", [&] { return compression::find_codecs(f.text("codec")); }));
  o.transports = parse_transports(f.text("transport"));
  o.buffers = read_buffers(f);
  o.in_place = read_placements(f);
  o.sizes = read_collective_sizes(f);
  o.elements = read_elements(f);
  o.ops = read_ops(f);
  o.accumulate_wide = read_accumulation(f);
  o.cadences = parse_cadences(f.text("cadence"));
  o.reductions = read_reductions(f);
  o.overlaps = choose("--overlap", "overlap", f.text("overlap"), std::vector{OverlapLoad::none, OverlapLoad::gemm},
                      [](auto u) { return std::string(name(u)); });
  o.roots = read_roots(f, ranks);
  o.cudagraphs = read_cudagraphs(f);
  o.repeats = read_repeats(f);
  o.calls = parse_count("--agg_iters", f.text("agg_iters"), 1, 1'000'000);
  o.threads = threads;
  o.device = f.text("device");
  if (f.has("interconnect")) o.interconnect = read_label(f, "interconnect");
  return o;
}

}  // namespace

FlagList describe_allreduce() {
  FlagList d("Flags (a comma list makes a factor; all gives every value there is)", 110);
  add_switch(d, "help,h", "this text");
  add_text(d, "minbytes,b", "8", "smallest buffer of a rank, in bytes");
  add_text(d, "maxbytes,e", "64M", "largest buffer");
  add_text(d, "stepbytes,i", "", "step between sizes, in bytes, instead of a factor");
  add_text(d, "stepfactor,f", "4", "factor between sizes");
  add_text(d, "sizes", "", "sizes of your own: 1M,3M");
  add_text(d, "set", "", "deepbench: the sizes of its all-reduce");
  add_text(d, "iters,n", "", "timed iterations; default: until --precision-goal is reached");
  add_text(d, "warmup_iters,w", "", "warm-up iterations; default: until times settle");
  add_text(d, "agg_iters,m", "1", "back-to-back calls in one timed iteration");
  add_text(d, "check,c", "1", "check results before, during and after timing; 0: never");
  add_text(d, "op,o", "sum", "sum, prod, min, max, avg");
  add_text(d, "datatype,d", "fp32", "element types: gradmeter's names or nccl-tests'");
  add_text(d, "root,r", "0", "root rank of broadcast");
  add_text(d, "average,a", "",
           "which of the ranks' times counts: 0 rank 0's, 1 their average, 2 min, 3 max (the default)");
  add_text(d, "reduction", "", "-a by name: rank0, avg, min, max; also span: last end - first start");
  add_text(d, "cudagraph,G", "none",
           "none, or N: capture an iteration's calls as a CUDA graph and launch that N times; needs --device cuda");
  add_repeats_flag(d);
  add_text(d, "collective", "allreduce", "allreduce, reduce_scatter, all_gather, broadcast, all_to_all, sendrecv");
  add_text(d, "algorithm", "mpi,auto,ring,direct", "see gradmeter list algorithms");
  add_text(
      d, "transport", "auto",
      "what moves the bytes of gradmeter's own algorithms: auto, mpi, shm, hybrid (shm inside a node, mpi between), "
      "cuda-mpi");
  add_text(
      d, "buffers", "arena",
      "memory of the buffers: arena (in shared memory if the transport uses it), plain (private, on huge pages if the "
      "kernel grants them), malloc (private), registered (with nccl; needs --device cuda)");
  add_text(d, "in-place", "both", "out, in, both");
  add_text(d, "accum-dtype", "same", "type in which 16-bit and 8-bit floats are summed: same, fp32");
  add_text(d, "cadence", "barrier",
           "how ranks are synchronised between calls: barrier; none; window: all begin at an agreed time");
  add_text(d, "overlap", "none", "none; gemm: communicate beside a matrix product, by a progress thread");
  add_text(d, "codec", "none",
           "how the data are compressed: none, bf16, qsgd4:bucket=512, topk …; see gradmeter list codecs");
  add_text(d, "device", "cpu", "whose memory holds the buffers: cpu, cuda");
  add_text(d, "fake-nodes", "", "0,0,1,1: treat one host as several nodes, given by rank; the result records it");
  add_text(d, "interconnect", "", "your label for the network between the ranks, stored with every point");
  add_text(d, "seed", "1", "random seed of the data");
  add_stopping_flags(d, {.budget = "for all points together: 90s, 10m; default: at most 1 s a point",
                         .samples = "minimum number of iterations for each point"});
  add_rank_flags(d);
  add_text(d, "write-table", "",
           "write the fastest algorithm of each size to this file, for --algorithm auto:table=FILE");
  add_text(
      d, "inject", "",
      "faults to inject: slow:rank=1,factor=2 (its calls take twice as long), flip:call=40,rank=0 (from that call on "
      "one element of its results is wrong), omit:call=40,rank=0 (from that call on it contributes zeros), "
      "drop:p=0.01,timeout=200ms (messages are lost and resent), delay:time=1ms,jitter=200us (messages are late), "
      "cut:rank=1,at=5s,for=2s (its link is down), drift:ppm=20 (the last rank's clock is fast; with "
      "--reduction span or --cadence window)");
  add_switch(d, "per-rank", "add a table of ranks: the time of each one's calls, and of its own work without waiting");
  add_switch(d, "dry-run", "only list the points, with their time and memory; measure nothing");
  add_text(d, "goal", "",
           "with --dry-run: write the schedule of one collective to this file, in GOAL, for network simulators; up to "
           "65536 --thread-ranks");
  add_text(d, "goal-sums", "10GB/s", "rate at which sums read what was received, for the times of --goal; 0: no time");
  add_format_flags(d);
  add_output_flags(d);
  return d;
}

std::vector<int> read_fake_nodes(const Flags& f, int ranks) {
  std::vector<int> out;
  if (!f.has("fake-nodes")) return out;
  for (const auto& item : split_list("--fake-nodes", f.text("fake-nodes"))) {
    out.push_back(static_cast<int>(parse_count("--fake-nodes", item, 0, 1u << 20)));
  }
  if (ranks > 0 && out.size() != static_cast<std::size_t>(ranks)) {
    throw UsageError(fmt::format("--fake-nodes {}: names {} nodes for {} rank{}; give one number for each rank",
                                 f.text("fake-nodes"), out.size(), ranks, ranks == 1 ? "" : "s"));
  }
  return out;
}

CollectiveOptions read_collective_options(const Flags& f, int ranks, int threads) {
  refuse_overlap_on_a_device(f);
  CollectiveOptions o = read_factors(f, ranks, threads);
  constexpr std::uint64_t most = 10'000'000;
  if (f.has("iters")) o.exact_samples = parse_count("--iters", f.text("iters"), 1, most);
  if (f.has("warmup_iters")) o.exact_warmup = parse_count("--warmup_iters", f.text("warmup_iters"), 0, most);
  o.check = parse_count("--check", f.text("check"), 0, 1) == 1;
  read_stopping(f, o.rule, o.time_budget);
  o.seed = parse_count("--seed", f.text("seed"), 0, UINT64_MAX);
  if (f.has("inject")) o.injection = read_injection(f.text("inject"), ranks, o);
  return o;
}

// gradmeter allreduce: collectives in turn with the vendor's, with nccl-tests' flags and columns.

namespace {

/// Without ranks the plan can only assume one node, unless nodes are faked.
NodeMap planned_nodes(const std::vector<int>& fake, int world) {
  if (fake.empty()) return {.node_of = std::vector<int>(static_cast<std::size_t>(world), 0)};
  return {.node_of = fake, .fake = true};
}

GoalFile read_goal_file(const Flags& f) {
  std::string rate = f.text("goal-sums");
  if (rate.ends_with("/s")) rate.resize(rate.size() - 2);
  return {.path = f.text("goal"),
          .reduce_bytes_per_s = static_cast<double>(parse_size("--goal-sums", rate)),
          .replaces = f.on("force")};
}

/// Ranks are only counted, so there may be more of them than threads.
int export_schedule(const Flags& f, const Invocation& invocation) {
  if (invocation.rank != 0) return 0;
  int ranks = runtime::read_launcher().size;
  if (f.has("thread-ranks"))
    ranks = static_cast<int>(parse_count("--thread-ranks", f.text("thread-ranks"), 1, most_goal_ranks));
  const bool counted = f.has("thread-ranks") || !runtime::read_launcher().name.empty();
  const auto map = planned_nodes(read_fake_nodes(f, counted ? ranks : 0), ranks);
  const auto options = read_collective_options(f, map.ranks(), 1);
  write_goal_file(read_goal_file(f), plan_collectives(options, map), map,
                  [&] { return invocation.process.signals.pending(); });
  return 0;
}

int print_collectives_plan(const Flags& f) {
  const auto launcher = planned_launcher(f);
  if (launcher.rank != 0) return 0;
  const auto host = runtime::read_host();
  read_format(f);
  read_output_flags(f);
  const auto fake = read_fake_nodes(f, launcher.name.empty() ? 0 : launcher.size);
  const auto map = planned_nodes(fake, launcher.size);
  const auto options = read_collective_options(f, map.ranks(), 1);
  core::Table table({{"collective", "", core::Align::left},
                     {"size", "B", core::Align::right},
                     {"point", "", core::Align::left},
                     {"memory", "/rank", core::Align::right},
                     {"at most", "s", core::Align::right}});
  double seconds = 0;
  std::size_t most = 0;
  const auto plan = estimate_collectives(options, map);
  std::vector<core::Factors> factors;
  std::vector<std::string> names, rows;
  for (const auto& e : plan) {
    const auto& p = e.point;
    factors.push_back(to_factors(p, map, options));
    names.push_back(fmt::format("{}{} {} {} {}", p.algorithm->name,
                                p.transport ? fmt::format("/{}", runtime::name(*p.transport)) : "",
                                core::info(p.element).name, name(p.buffers), p.in_place ? "in place" : "out of place"));
    rows.push_back(fmt::format("{} {} {}", p.collective->name, p.bytes(), names.back()));
  }
  const auto further = report::telling_apart(factors, rows);
  for (std::size_t i = 0; i < plan.size(); ++i) {
    const auto& e = plan[i];
    const auto& p = e.point;
    table.add_row({std::string(p.collective->name), fmt::format("{}", p.bytes()),
                   names[i] + report::values_text(factors[i], further), core::to_text(core::Bytes{e.bytes_per_rank}),
                   fmt::format("{:.1f}", e.seconds_at_most)},
                  p.unsupported.empty() ? "" : fmt::format("unsupported: {}", p.unsupported));
    seconds += e.seconds_at_most;
    most = std::max(most, e.bytes_per_rank);
  }
  core::print("{}\n{} on {}, at most {} in all, checks apart; {} a rank at once ({} free here)\n",
              table.to_string(table_width(f)), report::counted(table.rows(), "point"),
              report::counted(map.ranks(), "rank"), core::to_text(core::Seconds{seconds}),
              core::to_text(core::Bytes{most}), core::to_text(core::Bytes{host.available_memory_bytes}));
  return 0;
}

void print_collectives_head(const Session& s, const core::Injection& injected) {
  const auto& i = s.run_info();
  core::print("{}, {} cores a node  {}  {}\n{}\n", head_line(i, ""), i.cores_per_node, i.cpu,
              i.mpi_threads.empty() ? i.mpi : fmt::format("{} ({})", i.mpi, i.mpi_threads), injection_line(injected));
}

core::Table own_times_table() {
  using enum core::Align;
  return core::Table({{"collective", "", left},
                      {"size", "B", right},
                      {"algorithm", "", left},
                      {"", "", left},
                      {"rank", "", right},
                      {"host", "", left},
                      {"call", "us", right},
                      {"95 %", "us", right, 1},
                      {"alone", "us", right}});
}

/// A line for each rank.
void add_ranks(core::Table& table, const core::Point& p, const PointRanks& ranks, const Session& session) {
  using core::Factor;
  const auto microseconds = [](double t) { return report::digits(1e6 * t); };
  for (std::size_t r = 0; r < ranks.calls.size(); ++r) {
    const auto& t = ranks.calls[r];
    table.add_row({report::text(p.factors[Factor::collective]), report::text(p.factors[Factor::size_bytes]),
                   report::text(p.factors[Factor::algorithm]),
                   report::is_true(p.factors[Factor::in_place]) ? "in place" : "out of place", fmt::format("{}", r),
                   session.host_of(static_cast<int>(r)), microseconds(t.median),
                   std::isfinite(t.high) ? fmt::format("{} to {}", microseconds(t.low), microseconds(t.high)) : "-",
                   ranks.alone.empty() ? "-" : microseconds(ranks.alone[r].median)});
  }
}

/// Below the tables: what each rank took, the fastest of each size, what codecs gain.
std::string below_tables(std::span<const core::Point> points, const core::Table* ranks, std::size_t width,
                         report::Legend how) {
  std::string out;
  if (ranks) {
    out = fmt::format(
        "by rank; call: median of its own calls, with waiting; alone: of its work for the limit, without waiting\n{}\n",
        ranks->to_string(width));
  }
  const std::string codecs = codec_comparison(points, width);
  return fmt::format("{}{}{}{}{}", out, collective_winners(points, width), codecs, collective_legend(how),
                     codecs.empty() || how == report::Legend::brief ? "" : codec_comparison_legend());
}

/// Before there are other threads.
void inject_drift(const Flags& f, const runtime::Communicator& world) {
  if (!f.has("inject")) return;
  start_drift(core::parse_injection(f.text("inject")), world);
}

int measure_collectives(const Flags& f, const Invocation& invocation) {
  inject_drift(f, *invocation.world);
  const auto opened = open_session(f, invocation);
  Session& session = *opened;
  const auto& world = session.world();
  const auto map = find_nodes(session, read_fake_nodes(f, world.size()));
  // One core of a rank's share is the progress thread's, where there are two.
  const int threads = std::max(1, session.cores_per_node() / session.ranks_per_node(world.size()) - 1);
  const auto options = read_collective_options(f, world.size(), threads);
  const std::string table = f.has("write-table") ? f.text("write-table") : "";
  const bool per_rank = f.on("per-rank");
  core::Table ranks = own_times_table();
  return measure(measurer(session), f, invocation,
                 {.experiment = "allreduce",
                  .points = plan_collectives(options, map).size(),
                  .printers = {collective_tables, collective_csv()},
                  .check =
                      [&] {
                        if (!table.empty()) check_measured_table(table, options);
                      },
                  .head = [&] { print_collectives_head(session, options.injection); },
                  .measure =
                      [&](const auto& finished, const auto& rows) {
                        CollectiveListener listens{.rows = rows};
                        if (per_rank)
                          listens.ranks = [&](auto& p, auto& times) { add_ranks(ranks, p, times, session); };
                        return run_collectives(session, map, options, finished, listens);
                      },
                  .legend =
                      [&](auto points) {
                        return below_tables(points, per_rank ? &ranks : nullptr, table_width(f), read_legend(f));
                      },
                  .end =
                      [&](auto points) {
                        if (table.empty()) return core::ExitCode::done;
                        write_measured_table(table, points, session.run_info());
                        core::print(stderr, "gradmeter: {} has the fastest of each size\n", table);
                        return core::ExitCode::done;
                      }});
}

Usage allreduce_usage() {
  return {
      .flags = describe_allreduce(),
      .about =
          "gradmeter allreduce: collectives, checked, timed in turn with the vendor's, and compared with the limit\n"
          "\n"
          "mpirun -np 4 gradmeter allreduce -b 8 -e 64M -f 4 --algorithm mpi,ring --out r.jsonl"};
}

int run_allreduce_command(const Flags& flags, const Invocation& invocation) {
  if (flags.has("goal") && !flags.on("dry-run"))
    throw UsageError("--goal writes a schedule and measures nothing; give it with --dry-run");
  if (flags.given("goal-sums") && !flags.has("goal"))
    throw UsageError("--goal-sums is for the file of --goal; name one, or leave it out");
  if (flags.has("goal")) return export_schedule(flags, invocation);
  return flags.on("dry-run") ? print_collectives_plan(flags) : measure_collectives(flags, invocation);
}

}  // namespace

extern const Command allreduce_command{.name = "allreduce",
                                       .summary = "collectives by every algorithm, with nccl-tests' flags and columns",
                                       .with_ranks = true,
                                       .usage = allreduce_usage,
                                       .run = run_allreduce_command,
                                       .progress_flag = "--overlap"};

namespace {

using core::Factor;

template <class List>
void need_one(const char* flag, const List& values) {
  if (values.size() == 1) return;
  throw core::UsageError(
      fmt::format("--write-table holds one choice for each size, but {} has {} values; give one", flag, values.size()));
}

std::string factor_text(const core::Point& p, Factor f) { return core::to_text(p.factors[f]); }

}  // namespace

void check_measured_table(const std::string& path, const CollectiveOptions& f) {
  need_one("--collective", f.collectives);
  if (f.collectives.front()->collective_kind != allreduce::CollectiveKind::all_reduce) {
    throw core::UsageError(fmt::format("--write-table is for allreduce, not {}", f.collectives.front()->name));
  }
  need_one("--datatype", f.elements);
  need_one("--op", f.ops);
  need_one("--transport", f.transports);
  need_one("--buffers", f.buffers);
  need_one("--in-place", f.in_place);
  need_one("--cudagraph", f.cudagraphs);
  if (std::filesystem::exists(path)) {
    throw core::UsageError(fmt::format("--write-table {}: exists; remove it or give another name", path));
  }
}

void write_measured_table(const std::string& path, std::span<const core::Point> points, const core::RunInfo& run) {
  std::vector<allreduce::MeasuredSize> sizes;
  for (const auto& p : points) {
    if (p.status != core::Status::ok) continue;
    sizes.push_back({static_cast<std::uint64_t>(p.factors[Factor::size_bytes].get<std::int64_t>()),
                     factor_text(p, Factor::algorithm), p.metrics.number(core::Metric::time_s)});
  }
  const allreduce::SizeTable table(allreduce::fit_table(sizes));
  const auto& any = points.front();
  const std::vector<std::string> comments{
      fmt::format("the fastest of each size, for gradmeter --algorithm auto:table={}", path),
      fmt::format("{} {} {} over {} on {}, buffers {}, in place {}", factor_text(any, Factor::collective),
                  factor_text(any, Factor::dtype), factor_text(any, Factor::op), report::counted(run.ranks, "rank"),
                  report::counted(run.nodes, "node"), factor_text(any, Factor::buffers),
                  factor_text(any, Factor::in_place)),
      fmt::format("{}, {}, {}, machine {}", run.time, run.cpu, run.mpi, run.fingerprint), run.command};
  std::ofstream file(path);
  file << table_file_text(table, comments);
  file.flush();
  if (!file) throw core::BackendError("system", "write", fmt::format("{} could not be written", path));
}

}  // namespace gradmeter::bench
