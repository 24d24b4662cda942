// SPDX-License-Identifier: Apache-2.0
// Logs of each tool by its format strings, drawn at random with what they say, and spoiled as people's are: prefixes of
// launchers, colours, messages of NCCL between and within rows, echoes, several programs in one log, rows that lost
// their end. No row may be read that the log does not have, and of what nothing was taken from, nothing may be lost.
#include <algorithm>
#include <array>
#include <map>

#include "core/format.hpp"
#include "importers/generated.hpp"

namespace gradmeter::importers {
namespace {

using core::Factor;

/// What a tool prints: lines, some of which are rows that may be torn, and the truth.
struct Line {
  std::string text;
  bool is_row = false;
};
struct Log {
  std::vector<Line> lines;
  std::vector<TrueRow> rows;
  std::int64_t ranks_hint = 0;  ///< for --ranks
  std::vector<std::string> hosts;
  bool of_fixed_decimals = true;  ///< else a last number that lost its end looks whole
  void add(std::string text, bool is_row = false) { lines.push_back({std::move(text), is_row}); }
};

/// As it is printed.
double two_digits(double value) { return std::stod(fmt::format("{:.2f}", value)); }

double bus(const std::string& kind, std::int64_t n) {
  const double p = static_cast<double>(n);
  if (kind == "allreduce") return 2 * (p - 1) / p;
  return kind == "broadcast" || kind == "reduce" || kind == "sendrecv" ? 1 : (p - 1) / p;
}

// --- nccl-tests

constexpr std::array nccl_programs{Named{"all_reduce_perf", "allreduce"},
                                   Named{"all_gather_perf", "all_gather"},
                                   Named{"reduce_scatter_perf", "reduce_scatter"},
                                   Named{"broadcast_perf", "broadcast"},
                                   Named{"reduce_perf", "reduce"},
                                   Named{"alltoall_perf", "all_to_all"},
                                   Named{"gather_perf", "gather"},
                                   Named{"scatter_perf", "scatter"},
                                   Named{"sendrecv_perf", "sendrecv"}};
constexpr std::array nccl_types{Named{"int8", "int8"},     Named{"uint8", "uint8"},     Named{"int32", "int32"},
                                Named{"uint32", "uint32"}, Named{"int64", "int64"},     Named{"uint64", "uint64"},
                                Named{"half", "fp16"},     Named{"float", "fp32"},      Named{"double", "fp64"},
                                Named{"bfloat16", "bf16"}, Named{"f8e4m3", "fp8-e4m3"}, Named{"f8e5m2", "fp8-e5m2"}};
constexpr std::array nccl_hosts{"node-a", "gpu07", "ip-10-0-0-1", "dgx-h100-12.cluster", "n1"};

void add_nccl_run(Chance& chance, Log& log) {
  const bool old = chance.one_in(4), in_place_only = !old && chance.one_in(6), cpu_time = !old && chance.one_in(10);
  const auto& program = old ? nccl_programs[chance.below(5)] : chance.of(nccl_programs);
  const std::string kind = program.ours;
  const bool has_op = kind == "allreduce" || kind == "reduce_scatter" || kind == "reduce";
  const bool has_root = kind == "broadcast" || kind == "reduce" || kind == "gather" || kind == "scatter";
  std::int64_t groups = !old && chance.one_in(8) ? 2 + static_cast<std::int64_t>(chance.below(3)) : 1;
  const std::int64_t ranks = 2 + static_cast<std::int64_t>(chance.below(15));
  const char* host = chance.of(nccl_hosts);
  log.hosts.emplace_back(host);
  if (!old && chance.one_in(2)) log.add("# nccl-tests version 2.16.7 nccl-headers=22703 nccl-library=22703");
  if (!old) log.add(fmt::format("# Collective test starting: {}", program.theirs));
  log.add(
      "# nThread 1 nGpus 1 minBytes 1048576 maxBytes 4194304 step: 2(factor) warmup iters: 5 iters: 20 validation: 1 ");
  log.add("#");
  log.add("# Using devices");
  for (std::int64_t r = 0; r < ranks * groups; ++r)
    log.add(fmt::format("#  Rank {:2} {}Pid {:6} on {:>10} device {:2} [0000:{:02x}:00] NVIDIA H100 80GB HBM3", r,
                        old ? "" : fmt::format("Group {:2} ", r % groups), 4100 + r, host, r % 8, r % 8));
  log.add("#");
  log.add(in_place_only
              ? "#                                                 in-place          "
              : "#                                       out-of-place                       in-place          ");
  const std::string half =
      fmt::format("  {:>7}   algbw   busbw  {:>5}", cpu_time ? "cputime" : "time", old ? "error" : "#wrong");
  std::string head = "#       size         count      type";
  if (!old || has_op) head += "   redop";
  if (!old || has_root) head += "    root";
  log.add(head + half + (in_place_only ? "" : half));
  if (!in_place_only)
    log.add("#        (B)    (elements)     (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)       ");
  const auto& type = old ? nccl_types[7] : chance.of(nccl_types);
  constexpr std::array ops{"sum", "prod", "max", "min", "avg", "mulsum"};
  const std::string op = has_op ? chance.of(ops) : "none";
  const std::int64_t roots = has_root && chance.one_in(2) ? ranks : 1;
  const std::size_t sizes = 1 + chance.below(4), cycles = !old && chance.one_in(10) ? 2 : 1;
  for (std::size_t cycle = 0; cycle < cycles; ++cycle) {
    if (cycles > 1) log.add(fmt::format("# Testing {} cycle.", cycle + 1));
    for (std::size_t s = 0; s < sizes; ++s) {
      for (std::int64_t root = 0; root < roots; ++root) {
        const std::int64_t size = std::int64_t{1 << 20} << s;
        std::string row = fmt::format("{:12}  {:12}  {:>8}", size, size / 4, type.theirs);
        if (!old || has_op) row += fmt::format("  {:>6}", op);
        if (!old || has_root) row += fmt::format("  {:6}", has_root ? root : -1);
        for (const bool in_place : {false, true}) {
          if (in_place_only && !in_place) continue;
          const double us = two_digits(10 + static_cast<double>(chance.below(40000)) / 100);
          const double algbw = static_cast<double>(size) / us * 1e-3;
          const bool wrong = chance.one_in(40);
          row += fmt::format("  {:7.2f}  {:6.2f}  {:6.2f}  {:>5}", us, algbw, algbw * bus(kind, ranks),
                             old     ? (wrong ? "2e+00" : "3e-07")
                             : wrong ? "1e+06"
                                     : "0");
          TrueRow truth{.factors = true_factors(kind, ranks, size),
                        .seconds = us * 1e-6,
                        .status = wrong ? core::Status::wrong : core::Status::ok};
          truth.factors[Factor::dtype] = type.ours;
          if (has_op) truth.factors[Factor::op] = op;
          truth.factors[Factor::in_place] = in_place;
          truth.factors[Factor::algorithm] = "nccl";
          truth.factors[Factor::device] = "cuda";
          std::vector<std::string> problem;
          if (groups > 1) problem.push_back(fmt::format("groups={}", groups));
          if (has_root && root > 0) problem.push_back(fmt::format("root={}", root));
          if (cpu_time) problem.emplace_back("time=cpu");
          if (!problem.empty()) truth.factors[Factor::problem] = fmt::format("{}", fmt::join(problem, ","));
          log.rows.push_back(std::move(truth));
        }
        log.add(std::move(row), true);
      }
    }
  }
  if (!chance.one_in(5)) {
    log.add("# Out of bounds values : 0 OK");
    log.add("# Avg bus bandwidth    : 91.7 ");
    log.add("#");
  }
}

Log draw_nccl(Chance& chance) {
  Log log;
  const std::size_t runs = chance.one_in(3) ? 2 + chance.below(3) : 1;
  for (std::size_t r = 0; r < runs; ++r) {
    add_nccl_run(chance, log);
    if (chance.one_in(2)) log.add("");
  }
  return log;
}

// --- OSU

constexpr std::array osu_kinds{Named{"Allreduce", "allreduce"},
                               Named{"Reduce", "reduce"},
                               Named{"Broadcast", "broadcast"},
                               Named{"Allgather", "all_gather"},
                               Named{"Gather", "gather"},
                               Named{"Scatter", "scatter"},
                               Named{"Reduce_scatter", "reduce_scatter"},
                               Named{"All-to-All Personalized Exchange", "all_to_all"},
                               Named{"", "ping_pong"}};
constexpr std::array osu_others{"MPI_Put Latency",        "MPI_Get latency",
                                "MPI_Accumulate Latency", "MPI Bi-Directional Bandwidth",
                                "MPI Multi Latency",      "MPI Multiple Bandwidth / Message Rate",
                                "MPI Allgatherv Latency", "MPI All-to-Allv Personalized Exchange Latency",
                                "MPI Gatherv Latency"};

bool is_of_parts(const std::string& kind) {
  return kind == "all_gather" || kind == "all_to_all" || kind == "gather" || kind == "scatter";
}

void add_osu_title(Chance& chance, Log& log) {
  log.add("");
  if (chance.one_in(5)) {
    log.add(fmt::format("# OSU {} Test v7.4", chance.of(osu_others)));
    log.add("# Datatype: MPI_CHAR.");
    log.add("# Size     Avg Latency(us)");
    for (std::size_t s = 0; s < 3; ++s) log.add(fmt::format("{:<10}{:18.2f}", 1 << s, 2.5));
    return;
  }
  const auto& name = chance.of(osu_kinds);
  const std::string kind = name.ours;
  const bool is_bandwidth = kind == "ping_pong" && chance.one_in(2),
             non_blocking = kind != "ping_pong" && chance.one_in(4), persistent = !non_blocking && chance.one_in(6),
             full = !is_bandwidth && chance.one_in(2), checked = chance.one_in(4);
  constexpr std::array devices{Named{"MPI", "cpu"}, Named{"MPI-CUDA", "cuda"}, Named{"MPI-ROCM", "rocm"}};
  const auto& device = chance.of(devices);
  log.add(fmt::format("# OSU {} {}{}{}{} Test v7.4", device.theirs,
                      non_blocking ? "Non-blocking "
                      : persistent ? "Persistent "
                                   : "",
                      name.theirs, *name.theirs == 0 ? "" : " ", is_bandwidth ? "Bandwidth" : "Latency"));
  if (non_blocking) log.add("# Overall = Coll. Init + Compute + MPI_Test + MPI_Wait");
  const bool typed = chance.one_in(2);
  if (typed) log.add("# Datatype: MPI_FLOAT.");
  std::string head = "# Size  ";
  const auto column = [&](const char* title) { head += fmt::format("{:>20}", title); };
  if (is_bandwidth) {
    column("Bandwidth (MB/s)");
  } else if (non_blocking) {
    for (const char* title : {"Overall(us)", "Compute(us)", "Pure Comm.(us)"}) column(title);
    if (full) column("Min Comm.(us)"), column("Max Comm.(us)");
    column("Overlap(%)");
  } else {
    column("Avg Latency(us)");
    if (full) column("Min Latency(us)"), column("Max Latency(us)"), column("Iterations");
  }
  if (checked) column("Validation");
  log.add(head);
  const std::int64_t ranks = kind == "ping_pong" ? 2 : log.ranks_hint;
  const std::size_t sizes = 1 + chance.below(6);
  for (std::size_t s = 0; s < sizes; ++s) {
    const std::int64_t size = std::int64_t{4} << (2 * s);
    const double us = two_digits(1 + static_cast<double>(chance.below(100000)) / 100);
    const bool wrong = checked && chance.one_in(10);
    std::string row = fmt::format("{:<10}", size);
    const auto cell = [&](double value) { row += fmt::format("{:18.2f}", value); };
    double seconds = us * 1e-6;
    if (is_bandwidth) {
      cell(us);
      seconds = static_cast<double>(size) / (us * 1e6);
    } else if (non_blocking) {
      for (const double value : {3 * us, 2 * us, us}) cell(value);
      if (full) cell(us / 2), cell(two_digits(us * 1.5));
      cell(44.29);
      if (full) seconds = two_digits(us * 1.5) * 1e-6;
    } else {
      cell(us);
      if (full) cell(us / 2), cell(two_digits(us * 1.5)), row += fmt::format("{:18}", 1000);
      if (full) seconds = two_digits(us * 1.5) * 1e-6;
    }
    if (checked) row += fmt::format("{:>18}", wrong ? "Fail" : "Pass");
    TrueRow truth{.factors = true_factors(kind, ranks, is_of_parts(kind) ? size * ranks : size),
                  .seconds = seconds,
                  .status = wrong ? core::Status::wrong : core::Status::ok};
    truth.factors[Factor::device] = device.ours;
    if (typed) truth.factors[Factor::dtype] = "fp32";
    if (non_blocking || persistent) truth.factors[Factor::problem] = non_blocking ? "non-blocking" : "persistent";
    if (is_bandwidth) truth.factors[Factor::pattern] = "one-way";
    if (!is_bandwidth) truth.factors[Factor::reduction] = full ? "max" : "avg";
    log.rows.push_back(std::move(truth));
    log.add(std::move(row), true);
  }
}

Log draw_osu(Chance& chance) {
  Log log{.lines = {}, .rows = {}, .ranks_hint = 2 + static_cast<std::int64_t>(chance.below(63)), .hosts = {"node-a"}};
  for (std::size_t n = 1 + chance.below(4); n > 0; --n) add_osu_title(chance, log);
  return log;
}

// --- IMB

constexpr std::array imb_kinds{Named{"PingPong", "ping_pong"},
                               Named{"Allreduce", "allreduce"},
                               Named{"Reduce", "reduce"},
                               Named{"Allgather", "all_gather"},
                               Named{"Gather", "gather"},
                               Named{"Scatter", "scatter"},
                               Named{"Alltoall", "all_to_all"},
                               Named{"Bcast", "broadcast"},
                               Named{"Reduce_scatter", "reduce_scatter"},
                               Named{"Reduce_scatter_block", "reduce_scatter"},
                               Named{"Sendrecv", "sendrecv"}};
constexpr std::array imb_others{"PingPing", "Exchange",        "Allgatherv", "Alltoallv",
                                "Gatherv",  "Multi-Allreduce", "Iallreduce"};

void add_imb_table(Chance& chance, Log& log) {
  const bool other = chance.one_in(5);
  const Named name = other ? Named{chance.of(imb_others), ""} : chance.of(imb_kinds);
  const std::string kind = name.ours, theirs = name.theirs;
  const std::int64_t ranks = kind == "ping_pong" ? 2 : 2 + static_cast<std::int64_t>(chance.below(31));
  log.add("#----------------------------------------------------------------");
  log.add(fmt::format("# Benchmarking {} ", theirs));
  log.add(fmt::format("# #processes = {} ", ranks));
  log.add("#----------------------------------------------------------------");
  const bool pair = kind == "ping_pong", checked = !pair && chance.one_in(4);
  log.add(pair ? "       #bytes #repetitions      t[usec]   Mbytes/sec"
               : std::string("       #bytes #repetitions  t_min[usec]  t_max[usec]  t_avg[usec]") +
                     (checked ? "      defects" : ""));
  const bool by_parts = is_of_parts(kind) || theirs == "Reduce_scatter_block";
  for (std::size_t s = chance.below(2); s < 5; ++s) {
    const std::int64_t size = s == 0 ? 0 : std::int64_t{1} << (3 * s);
    const double us = two_digits(1 + static_cast<double>(chance.below(100000)) / 100);
    TrueRow truth{.factors = true_factors(kind, ranks, by_parts ? size * ranks : size), .seconds = us * 1e-6};
    truth.factors[Factor::reduction] = pair ? "rank0" : "max";
    if (theirs == "Reduce_scatter_block") truth.factors[Factor::problem] = "block";
    if (!other && !pair && s > 0 && chance.one_in(12)) {
      constexpr std::array reasons{
          "out-of-mem.; needed X=   1.254 GB; use flag \"-mem X\" or MAX_MEM_USAGE>=X (IMB_mem_info.h)",
          "time-out.; Time limit (secs_per_sample * msg_sizes_list_len) is over; use \"-time X\"",
          "int-overflow.; The production rank*size caused int overflow for given sample"};
      const std::size_t reason = chance.below(reasons.size());
      log.add(fmt::format("{:13} {}", size, reasons[reason]));
      truth.seconds = 0;
      truth.status = reason == 2 ? core::Status::unsupported : core::Status::failed;
    } else {
      const bool wrong = checked && chance.one_in(6);
      std::string row =
          pair ? fmt::format("{:13} {:12} {:12.2f} {:12.2f}", size, 1000, us, static_cast<double>(size) / us)
               : fmt::format("{:13} {:12} {:12.2f} {:12.2f} {:12.2f}", size, 1000, us / 2, us, us * 0.75);
      if (checked) row += fmt::format(" {:12.2f}", wrong ? 6.25 : 0.0);
      if (wrong) truth.status = core::Status::wrong;
      log.add(std::move(row), true);
    }
    if (!other && size > 0) log.rows.push_back(std::move(truth));
  }
  log.add("");
}

Log draw_imb(Chance& chance) {
  Log log{.lines = {}, .rows = {}, .hosts = {"node-a"}};
  log.add("#    Intel(R) MPI Benchmarks 2021.7, MPI-1 part");
  for (std::size_t n = 1 + chance.below(4); n > 0; --n) add_imb_table(chance, log);
  return log;
}

// --- PARAM

Log draw_param(Chance& chance) {
  Log log{.lines = {}, .rows = {}, .hosts = {"node-a"}};
  constexpr std::array kinds{Named{"all_reduce", "allreduce"},
                             Named{"all_gather", "all_gather"},
                             Named{"reduce_scatter_base", "reduce_scatter"},
                             Named{"broadcast", "broadcast"},
                             Named{"all_to_all", "all_to_all"},
                             Named{"all_to_allv", "all_to_allv"}};
  constexpr std::array types{Named{"float32", "fp32"}, Named{"bfloat16", "bf16"}, Named{"int32", "int32"}};
  for (std::size_t runs = 1 + chance.below(3); runs > 0; --runs) {
    const std::int64_t ranks = 2 + static_cast<std::int64_t>(chance.below(15));
    log.add(fmt::format("[Rank   0] allSizes: [64] groupRanks: None groupSize {}", ranks));
    const auto &kind = chance.of(kinds), &type = chance.of(types);
    log.add(
        "\tCOMMS-RES\ttotal-size "
        "(B)\tnElementsPerRank\tTime(us):p50\tp75\t\tp95\t\tMin\t\tMax\tAlgBW(GB/s)\tBusBW(GB/s)");
    for (std::size_t s = 0; s < 1 + chance.below(5); ++s) {
      const std::int64_t size = std::int64_t{1 << 16} << s;
      const double us = 10 + static_cast<double>(chance.below(9000)) / 10, most = us * 1.5;
      const double algbw = static_cast<double>(size) / us * 1e-3;
      TrueRow truth{.factors = true_factors(kind.ours, ranks, size),
                    .seconds = std::stod(fmt::format("{:.1f}", most)) * 1e-6};
      truth.factors[Factor::dtype] = type.ours;
      truth.factors[Factor::reduction] = "max";
      if (kind.theirs == std::string("reduce_scatter_base")) truth.factors[Factor::problem] = "base";
      log.rows.push_back(truth);
      log.add(fmt::format(
                  "\tCOMMS-RES-{}-{}-\t{:12}\t{:12}\t{:.1f}\t{:.1f}\t{:.1f}\t{:.1f}\t{:.1f}\t{:.3f}\t{:.3f}\t{:.3f}",
                  kind.theirs, type.theirs, size, size / 4, us, us, us, us / 2, most, algbw,
                  algbw * bus(kind.ours, ranks), 0.0),
              true);
    }
  }
  return log;
}

// --- NCCL's Inspector: a call of its own size each

Log draw_inspector(Chance& chance) {
  Log log{.lines = {}, .rows = {}, .hosts = {"node-a"}};
  constexpr std::array kinds{Named{"AllReduce", "allreduce"}, Named{"AllGather", "all_gather"},
                             Named{"ReduceScatter", "reduce_scatter"}, Named{"Broadcast", "broadcast"}};
  const std::int64_t ranks = 2 + static_cast<std::int64_t>(chance.below(15));
  for (std::size_t s = 0; s < 1 + chance.below(8); ++s) {
    const auto& kind = chance.of(kinds);
    const bool parts = kind.ours == std::string("all_gather") || kind.ours == std::string("reduce_scatter");
    const std::int64_t size = std::int64_t{1 << 16} << s;
    const std::size_t us = 10 + chance.below(9000);
    TrueRow truth{.factors = true_factors(kind.ours, ranks, parts ? size * ranks : size),
                  .seconds = static_cast<double>(us) * 1e-6};
    truth.factors[Factor::nodes] = 2;
    truth.factors[Factor::algorithm] = "nccl";
    truth.factors[Factor::device] = "cuda";
    log.rows.push_back(std::move(truth));
    log.add(fmt::format(R"({{"header":{{"id":"0x7f8c496ae9f661","rank":0,"n_ranks":{},"nnodes":2}},"metadata":{{)"
                        R"("inspector_output_format_version":"v4.0","hostname":"gpu01"}},"coll_perf":{{"coll":"{}",)"
                        R"("coll_sn":{},"coll_msg_size_bytes":{},"coll_exec_time_us":{}}}}})",
                        ranks, kind.theirs, s, size, us),
            true);
  }
  return log;
}

// --- DeepBench's all-reduces

Log draw_deepbench(Chance& chance) {
  Log log{.lines = {}, .rows = {}, .hosts = {"node-a"}, .of_fixed_decimals = false};
  for (std::size_t tables = 1 + chance.below(3); tables > 0; --tables) {
    const std::int64_t ranks = 2 + static_cast<std::int64_t>(chance.below(15));
    log.add(" NCCL MPI AllReduce ");
    log.add(fmt::format(" Num Ranks: {}", ranks));
    log.add("---------------------------------------------------------------------------");
    log.add("    # of floats    bytes transferred    Avg Time (msec)    Max Time (msec)");
    log.add("---------------------------------------------------------------------------");
    for (std::size_t s = 0; s < 1 + chance.below(5); ++s) {
      const std::int64_t floats = std::int64_t{100000} << s;
      const double ms = two_digits(1 + static_cast<double>(chance.below(9000)) / 100);
      TrueRow truth{.factors = true_factors("allreduce", ranks, floats * 4), .seconds = ms * 1e-3};
      truth.factors[Factor::algorithm] = "nccl";
      truth.factors[Factor::dtype] = "fp32";
      truth.factors[Factor::op] = "sum";
      truth.factors[Factor::reduction] = "max";
      log.rows.push_back(std::move(truth));
      log.add(fmt::format("{:15}{:15}{:20.2f}{:20.2f}", floats, floats * 4, ms / 2, ms), true);
    }
  }
  return log;
}

// --- What happens to logs

std::string message_of(Chance& chance, const std::string& host) {
  constexpr std::array said{"NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM", "NCCL INFO Connected all rings",
                            "graph/xml.h:85 NCCL WARN No NIC", "NCCL INFO comm 0x5581 rank 3 nranks 8"};
  return fmt::format("{}:{}:{} [{}] {}", host, 4100 + chance.below(8), 4200 + chance.below(99), chance.below(8),
                     chance.of(said));
}

std::string prefix_of(std::size_t kind, std::size_t line) {
  switch (kind) {
    case 1:
      return "[1,0]<stdout>:";
    case 2:
      return "0: ";
    case 3:
      return fmt::format("2026-03-04T10:{:02}:{:02}.123456789Z ", line / 60 % 60, line % 60);
    case 4:
      return " 0: ";
    case 5:
      return "[pod/nccl-0/main] ";
    case 6:
      return fmt::format("2026-03-04T10:{:02}:{:02}.123456789+01:00 stdout F ", line / 60 % 60, line % 60);
    case 7:
      return "[1,0]<stdout>: ";
    case 8:
      return "\x1b[32m";
    case 9:
      return "    ";
    case 10:
      return "[prterun-gpu-dy-p5-48xlarge-12.pcluster-prod.eu-central-1.internal-2193412@1,0]<stdout>:";
    case 11:
      return fmt::format("2026-03-04T10:{:02}:{:02}.123+0000 ", line / 60 % 60, line % 60);
    case 12:
      return "gpu-node-01: ";
    case 13:
      return "worker-0  | ";
    case 14:
      return fmt::format("Mar  4 10:{:02}:{:02} node01 job[4711]: ", line / 60 % 60, line % 60);
    default:
      return "";
  }
}

/// The text of a log. `lost`: rows whose end is lost, besides.
std::string spoiled(Chance& chance, const Log& log, std::size_t lost) {
  std::vector<std::string> lines;
  const bool talks = chance.one_in(2);
  std::vector<std::size_t> places;
  for (std::size_t i = 0; i < log.lines.size(); ++i)
    if (log.lines[i].is_row) places.push_back(i);
  std::map<std::size_t, bool> loses;
  for (; lost > 0 && !places.empty(); --lost) loses[chance.of(places)] = true;
  constexpr std::array echoes{"8 GPUs per node, 1 node", "2026 03 04 job 17 begins", "Loading modules", "node-a: done",
                              ""};
  if (chance.one_in(3)) lines.emplace_back(chance.of(echoes));
  if (talks && !chance.one_in(10))  // as it does at the start
    for (const std::string& host : log.hosts) lines.push_back(message_of(chance, host));
  for (std::size_t i = 0; i < log.lines.size(); ++i) {
    const auto& [text, is_row] = log.lines[i];
    if (talks && chance.one_in(8)) lines.push_back(message_of(chance, chance.of(log.hosts)));
    if (loses.contains(i)) {
      const std::size_t most = log.of_fixed_decimals ? text.size() - 2 : text.rfind(' ');
      lines.push_back(text.substr(0, 14 + chance.below(most - 14)));
    } else if (talks && is_row && chance.one_in(6)) {  // a message within the row
      const std::size_t at = 1 + chance.below(text.size() - 1);
      lines.push_back(text.substr(0, at) + message_of(chance, chance.of(log.hosts)));
      if (chance.one_in(3)) lines.push_back(message_of(chance, chance.of(log.hosts)));
      lines.push_back(text.substr(at));
    } else {
      lines.push_back(text);
    }
  }
  if (chance.one_in(3)) lines.emplace_back("1 node done");
  // What others put before lines is known by the tool's own comments.
  const auto comments = std::ranges::count_if(log.lines, [](const Line& l) { return l.text.starts_with('#'); });
  const std::size_t prefix = chance.one_in(2) ? 1 + chance.below(comments < 3 ? 11 : 14) : 0;
  const std::string end = std::string(prefix == 8 ? "\x1b[0m" : "") + (chance.one_in(6) ? "\r\n" : "\n");
  std::string out;
  for (std::size_t i = 0; i < lines.size(); ++i) out += prefix_of(prefix, i) + lines[i] + end;
  return out;
}

class Generated : public ::testing::TestWithParam<std::pair<const char*, Log (*)(Chance&)>> {};

TEST_P(Generated, NothingIsReadThatIsNotThereAndNothingIsLost) {
  int whole = 0, complete = 0;
  for (int n = 0; n < logs_of_a_tool; ++n) {
    Chance chance(static_cast<std::uint64_t>(n));
    const Log log = GetParam().second(chance);
    const std::size_t lost = chance.one_in(4) ? 1 + chance.below(3) : 0;
    const std::string text = spoiled(chance, log, lost);
    const UserFacts user_facts{.ranks = log.ranks_hint, .collective = {}, .interconnect = {}};
    std::vector<TrueRow> found;
    if (refusal(text, user_facts).empty()) found = rows_of(read(text, user_facts));
    ASSERT_EQ(untrue_row(log.rows, found), "") << "log " << n << ":\n" << text;
    whole += lost == 0;
    complete += lost == 0 && found.size() == log.rows.size();
  }
  EXPECT_GE(complete, 0.98 * whole) << complete << " of " << whole << " logs are read with every row";
  RecordProperty("complete", fmt::format("{} of {}", complete, whole));
}

INSTANTIATE_TEST_SUITE_P(Tools, Generated,
                         ::testing::Values(std::pair{"nccl", &draw_nccl}, std::pair{"osu", &draw_osu},
                                           std::pair{"imb", &draw_imb}, std::pair{"param", &draw_param},
                                           std::pair{"inspector", &draw_inspector},
                                           std::pair{"deepbench", &draw_deepbench}),
                         [](const auto& i) { return std::string(i.param.first); });

// What another program writes without a line end stands before the next row, of two columns too.
TEST(GeneratedOsu, ARowBehindAnotherTextIsCounted) {
  constexpr std::array texts{"[node-a:04711] Read -1, expected 8, errno = ", "loss=0.25", "node-a",
                             "WARNING: ", "step 3 of 12 "};
  std::size_t rows = 0, taken = 0, hidden = 0;
  for (std::uint64_t n = 0; n < logs_of_a_tool; ++n) {
    Chance chance(n);
    const Log log = draw_osu(chance);
    std::string text;
    std::size_t hidden_here = 0;
    bool is_read = false;
    for (const auto& [line, is_row] : log.lines) {
      if (line.starts_with("# OSU")) is_read = false;
      const bool hides = is_row && chance.one_in(5);
      is_read = is_read || (is_row && !hides);
      hidden_here += hides;
      text += (hides ? chance.of(texts) : "") + line + "\n";
    }
    const UserFacts user_facts{.ranks = log.ranks_hint, .collective = {}, .interconnect = {}};
    const std::string said =
        fmt::format("{} row{} that cannot be read (line ", hidden_here, hidden_here == 1 ? "" : "s");
    rows += log.rows.size();
    hidden += hidden_here;
    if (const std::string why = refusal(text, user_facts); !why.empty()) {
      if (hidden_here > 0) {
        EXPECT_NE(why.find(said), std::string::npos) << why << ":\n" << text;
      }
      continue;
    }
    const auto reading = read(text, user_facts);
    taken += reading.run.points.size();
    EXPECT_EQ(untrue_row(log.rows, rows_of(reading)), "") << text;
    EXPECT_EQ(reading.run.points.size() + hidden_here, log.rows.size()) << text;
    if (hidden_here > 0) {
      EXPECT_NE(reading.faults.find(said), std::string::npos) << reading.faults << ":\n" << text;
    }
  }
  EXPECT_GT(hidden, rows / 10);
  EXPECT_GT(taken, rows / 2);
}

// --- nccl-tests' JSON, of which nothing can be torn

/// A process has an entry in the list, and several ranks.
std::string draw_json(Chance& chance, std::vector<TrueRow>& rows) {
  const auto& program = chance.of(nccl_programs);
  const std::string kind = program.ours;
  const auto each = static_cast<std::int64_t>(1 + chance.below(3)),
             processes = static_cast<std::int64_t>(1 + chance.below(4)),
             groups = chance.one_in(3) ? static_cast<std::int64_t>(1 + chance.below(3)) : 1, ranks = processes * each;
  const std::size_t graph = chance.one_in(4) ? 5 : 0, calls = chance.one_in(4) ? 20 : 1;
  std::vector<std::string> devices, results;
  for (std::int64_t p = 0; p < processes * groups; ++p)
    devices.push_back(fmt::format(R"({{"rank":{},"group":{},"hostname":"a"}})", p * each, p % groups));
  const bool has_op = kind == "allreduce" || kind == "reduce_scatter" || kind == "reduce";
  const bool has_root = kind == "broadcast" || kind == "reduce" || kind == "gather" || kind == "scatter";
  for (std::size_t s = 0; s < 1 + chance.below(4); ++s) {
    const std::int64_t size = std::int64_t{1 << 20} << s;
    const double us = two_digits(10 + static_cast<double>(chance.below(40000)) / 100);
    const double algbw = static_cast<double>(size) / us * 1e-3;
    const bool is_nan = chance.one_in(8), wrong = chance.one_in(8);
    const std::string half =
        fmt::format(R"({{"time":{:f},"alg_bw":{},"bus_bw":{:f},"nwrong":{:f}}})", us,
                    is_nan ? "\"nan\"" : fmt::format("{:f}", algbw), algbw * bus(kind, ranks), wrong ? 7.0 : 0.0);
    results.push_back(fmt::format(
        R"({{"size":{},"count":{},"type":"float","redop":"{}","root":"{:6}","out_of_place":{},"in_place":null}})", size,
        size / 4, has_op ? "sum" : "none", has_root ? 0 : -1, half));
    if (is_nan) continue;
    TrueRow truth{.factors = true_factors(kind, ranks, size),
                  .seconds = us * 1e-6,
                  .status = wrong ? core::Status::wrong : core::Status::ok};
    truth.factors[Factor::dtype] = "fp32";
    if (has_op) truth.factors[Factor::op] = "sum";
    truth.factors[Factor::in_place] = false;
    truth.factors[Factor::algorithm] = "nccl";
    truth.factors[Factor::device] = "cuda";
    if (graph > 0) truth.factors[Factor::cudagraph] = static_cast<std::int64_t>(graph);
    std::vector<std::string> problem;
    if (groups > 1) problem.push_back(fmt::format("groups={}", groups));
    if (calls > 1) problem.push_back(fmt::format("agg={}", calls));
    if (!problem.empty()) truth.factors[Factor::problem] = fmt::format("{}", fmt::join(problem, ","));
    rows.push_back(std::move(truth));
  }
  return fmt::format(
      R"({{"version":2,"args":["./{}"],"env":[],"nccl_version":22809,"config":{{"nthreads":1,"ngpus":{},)"
      R"("aggregated_iterations":{},"graph":{},"devices":[{}]}},"results":[{}]}})",
      program.theirs, each, calls, graph, fmt::join(devices, ","), fmt::join(results, ","));
}

TEST(GeneratedJson, EachRowIsReadAsItIs) {
  for (std::uint64_t n = 0; n < logs_of_a_tool; ++n) {
    Chance chance(n);
    std::vector<TrueRow> rows;
    const std::string text = draw_json(chance, rows);
    if (rows.empty()) continue;
    const auto found = rows_of(read(text));
    EXPECT_EQ(untrue_row(rows, found), "") << text;
    EXPECT_EQ(untrue_row(found, rows), "") << text;
  }
}

// A script that runs one tool after another has one log of them.
TEST(GeneratedMixes, RowsOfAnotherToolAreLeftOutOrTheirOwn) {
  constexpr std::array draws{&draw_nccl, &draw_osu, &draw_imb, &draw_param};
  std::size_t rows = 0, found_rows = 0;
  for (std::uint64_t n = 0; n < logs_of_a_tool / 4; ++n) {
    Chance chance(n);
    std::vector<TrueRow> truth;
    std::string text;
    for (std::size_t part = 2 + chance.below(2); part > 0; --part) {
      const Log log = chance.of(draws)(chance);
      for (const Line& line : log.lines) text += line.text + "\n";
      for (TrueRow row : log.rows) {
        truth.push_back(row);
        // Ranks that a log does not say, nobody says of it here.
        if (log.ranks_hint > 0) row.factors[Factor::ranks] = {};
        if (log.ranks_hint > 0) truth.push_back(std::move(row));
      }
      rows += log.rows.size();
    }
    if (!refusal(text).empty()) continue;
    const auto found = rows_of(read(text));
    found_rows += found.size();
    EXPECT_EQ(untrue_row(truth, found), "") << text;
  }
  EXPECT_GT(found_rows, rows / 4);
}

// Each world's lines are in their order, and of the same program.
TEST(GeneratedWorlds, InOneLogAreRefusedOrMistrusted) {
  int refused = 0;
  for (int n = 0; n < logs_of_a_tool; ++n) {
    Chance chance(static_cast<std::uint64_t>(n));
    Log a, b;
    add_nccl_run(chance, a);
    add_nccl_run(chance, b);
    std::string text;
    for (std::size_t i = 0, j = 0; i + j < a.lines.size() + b.lines.size();) {
      const bool first = j == b.lines.size() || (i < a.lines.size() && chance.one_in(2));
      text += (first ? a.lines[i++] : b.lines[j++]).text + "\n";
    }
    const bool is_refused = !refusal(text).empty();
    refused += is_refused;
    if (is_refused) continue;
    std::vector<TrueRow> truth = a.rows, found = rows_of(read(text));
    truth.insert(truth.end(), b.rows.begin(), b.rows.end());
    std::erase_if(found, [](const TrueRow& row) { return row.status == core::Status::mistrusted; });
    EXPECT_EQ(untrue_row(truth, found), "") << text;
  }
  EXPECT_GE(refused, 0.98 * logs_of_a_tool);
}

TEST(GeneratedWorlds, OtherRanksThanTheLogsAreRefused) {
  for (std::uint64_t n = 0; n < 200; ++n) {
    Chance chance(n);
    const std::string text = spoiled(chance, draw_nccl(chance), 0);
    EXPECT_NE(refusal(text, {.ranks = 99, .collective = {}, .interconnect = {}}).find("but --ranks 99"),
              std::string::npos)
        << text;
  }
}

}  // namespace
}  // namespace gradmeter::importers
