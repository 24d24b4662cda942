// SPDX-License-Identifier: Apache-2.0
// The subcommand allreduce: collectives in turn with the vendor's, with nccl-tests' flags and columns.
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
#include "core/error.hpp"
#include "core/format.hpp"
#include "core/print.hpp"
#include "core/result.hpp"
#include "core/table.hpp"
#include "report/cells.hpp"
#include "runtime/host/environment.hpp"
#include "runtime/mpi/session.hpp"

namespace gradmeter::bench {

// Writes what a sweep has measured as a table for --algorithm auto:table=FILE.

/// Errors: UsageError when the factors do not make one table (one all-reduce, datatype, operation, transport, kind of
/// buffers, placement, cadence, reduction, overlap and accumulation, and no codec), or when the file exists.
void check_measured_table(const std::string& path, const CollectiveOptions&);

/// The algorithm with the least median time at every size. Comments say the machine and the conditions, and at which
/// sizes it is not shown to be faster than all others.
/// Errors: BackendError when the file cannot be written; UsageError when no point was measured.
void write_measured_table(const std::string& path, std::span<const core::Point>, const core::RunInfo&);

namespace {

using core::UsageError;

/// The node that each rank pretends to be on; empty: real nodes. ranks: the number of ranks that must have a node; 0:
/// any number. Errors: UsageError.
std::vector<int> read_fake_nodes(const Flags& flags, int ranks) {
  std::vector<int> out;
  if (!flags.has("fake-nodes")) return out;
  for (const auto& item : split_list("--fake-nodes", flags.text("fake-nodes"))) {
    out.push_back(static_cast<int>(parse_count("--fake-nodes", item, 0, 1u << 20)));
  }
  if (ranks > 0 && out.size() != static_cast<std::size_t>(ranks)) {
    throw UsageError(fmt::format("--fake-nodes {}: names {} nodes for {} rank{}; give one number for each rank",
                                 flags.text("fake-nodes"), out.size(), ranks, ranks == 1 ? "" : "s"));
  }
  return out;
}

/// Without ranks the plan can only assume one node, unless nodes are faked.
NodeMap planned_nodes(const std::vector<int>& fake, int world) {
  if (fake.empty()) return {.node_of = std::vector<int>(static_cast<std::size_t>(world), 0)};
  return {.node_of = fake, .fake = true};
}

GoalFile read_goal_file(const Flags& flags) {
  std::string rate = flags.text("goal-sums");
  if (rate.ends_with("/s")) rate.resize(rate.size() - 2);
  return {.path = flags.text("goal"),
          .reduce_bytes_per_s = static_cast<double>(parse_size("--goal-sums", rate)),
          .replaces = flags.on("force")};
}

/// Carries out --goal. It starts no ranks, so --thread-ranks may be larger than the number of threads that can run.
int export_schedule(const Flags& flags, const Invocation& invocation) {
  if (invocation.rank != 0) return 0;
  int ranks = runtime::read_launcher().size;
  if (flags.has("thread-ranks"))
    ranks = static_cast<int>(parse_count("--thread-ranks", flags.text("thread-ranks"), 1, most_goal_ranks));
  const bool is_count_given = flags.has("thread-ranks") || !runtime::read_launcher().name.empty();
  const auto map = planned_nodes(read_fake_nodes(flags, is_count_given ? ranks : 0), ranks);
  const auto options = read_collective_options(flags, map.ranks(), 1);
  write_goal_file(read_goal_file(flags), plan_collectives(options, map), map,
                  [&] { return invocation.process.signals.first_signal(); });
  return 0;
}

int print_collectives_plan(const Flags& flags) {
  const auto launcher = planned_launcher(flags);
  if (launcher.rank != 0) return 0;
  const auto host = runtime::read_host();
  read_format(flags);
  read_output_flags(flags);
  const auto fake = read_fake_nodes(flags, launcher.name.empty() ? 0 : launcher.size);
  const auto map = planned_nodes(fake, launcher.size);
  const auto options = read_collective_options(flags, map.ranks(), 1);
  core::Table table({{"collective", "", core::Align::left},
                     {"size", "B", core::Align::right},
                     {"point", "", core::Align::left},
                     {"memory", "/rank", core::Align::right},
                     {"at most", "s", core::Align::right}});
  // A number of iterations says nothing of their length.
  const bool is_timed = options.exact_samples == 0;
  double seconds = 0;
  std::size_t most_bytes = 0;
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
  const auto extra_factors = report::distinguishing_factors(factors, rows);
  for (std::size_t i = 0; i < plan.size(); ++i) {
    const auto& e = plan[i];
    const auto& p = e.point;
    table.add_row(
        {std::string(p.collective->name), fmt::format("{}", p.bytes()),
         names[i] + report::values_text(factors[i], extra_factors), core::to_text(core::Bytes{e.bytes_per_rank}),
         is_timed ? fmt::format("{:.1f}", e.seconds_at_most) : "-"},
        p.unsupported.empty() ? "" : fmt::format("unsupported: {}", p.unsupported));
    seconds += e.seconds_at_most;
    most_bytes = std::max(most_bytes, e.bytes_per_rank);
  }
  const std::string duration =
      is_timed ? fmt::format("at most {} in all, checks apart", core::to_text(core::Seconds{seconds}))
               : fmt::format("each for {} (-n), so how long is not known",
                             report::counted(options.exact_samples, "iteration"));
  core::print("{}\n{} on {}, {}; {} a rank at once ({} free here)\n", table.to_string(table_width(flags)),
              report::counted(table.rows(), "point"), report::counted(map.ranks(), "rank"), duration,
              core::to_text(core::Bytes{most_bytes}), core::to_text(core::Bytes{host.available_memory_bytes}));
  return 0;
}

void print_collectives_head(const Session& s, const core::Injection& injected) {
  const auto& info = s.run_info();
  core::print("{}, {} cores a node  {}  {}\n{}\n", head_line(info, ""), info.cores_per_node, info.cpu,
              info.mpi_threads.empty() ? info.mpi : fmt::format("{} ({})", info.mpi, info.mpi_threads),
              injection_line(injected));
}

/// The times of one point by rank, for the table of --per-rank.
struct TimesOfRanks {
  core::Factors factors;
  std::vector<OwnTime> calls, alone;
};

/// The point in the table's rows. Points that would have the same text are told apart by other factors.
std::vector<std::string> names_of(std::span<const TimesOfRanks> points) {
  using core::Factor;
  std::vector<core::Factors> factors;
  std::vector<std::string> names, rows;
  for (const auto& p : points) {
    const auto& f = factors.emplace_back(p.factors);
    names.push_back(fmt::format("{} {}", report::text(f[Factor::algorithm]),
                                report::is_true(f[Factor::in_place]) ? "in place" : "out of place"));
    rows.push_back(fmt::format("{} {} {}", report::text(f[Factor::collective]), report::text(f[Factor::size_bytes]),
                               names.back()));
  }
  const auto extra_factors = report::distinguishing_factors(factors, rows);
  for (std::size_t i = 0; i < names.size(); ++i) names[i] += report::values_text(factors[i], extra_factors);
  return names;
}

/// A table with a line for each rank of each point.
core::Table own_times_table(std::span<const TimesOfRanks> points, const Session& session) {
  using core::Factor;
  using enum core::Align;
  core::Table table({{"collective", "", left},
                     {"size", "B", right},
                     {"point", "", left},
                     {"rank", "", right},
                     {"host", "", left},
                     {"call", "us", right},
                     {"95 %", "us", right, 1},
                     {"alone", "us", right}});
  const auto microseconds = [](double t) { return std::isnan(t) ? "-" : report::digits(1e6 * t); };
  const auto names = names_of(points);
  for (std::size_t i = 0; i < points.size(); ++i) {
    const auto& p = points[i];
    for (std::size_t r = 0; r < p.calls.size(); ++r) {
      const auto& t = p.calls[r];
      table.add_row({report::text(p.factors[Factor::collective]), report::text(p.factors[Factor::size_bytes]), names[i],
                     fmt::format("{}", r), session.host_of(static_cast<int>(r)), microseconds(t.median),
                     std::isfinite(t.high) ? fmt::format("{} to {}", microseconds(t.low), microseconds(t.high)) : "-",
                     p.alone.empty() ? "-" : microseconds(p.alone[r].median)});
    }
  }
  return table;
}

/// The text below the tables: the times of each rank (null: none), the fastest of each size, what codecs gain.
std::string below_tables(std::span<const core::Point> points, const core::Table* ranks, std::size_t width,
                         report::Legend legend) {
  std::string out;
  if (ranks) {
    out = fmt::format(
        "by rank; call: median of its calls, with waiting; alone: median time of the reference work that "
        "gives the limit, in which no rank waits\n{}\n",
        ranks->to_string(width));
  }
  const std::string codecs = codec_comparison(points, width);
  return fmt::format("{}{}{}{}{}", out, collective_winners(points, width), codecs, collective_legend(legend),
                     codecs.empty() || legend == report::Legend::brief ? "" : codec_comparison_legend());
}

/// Lets this rank's clock drift if --inject says so. To be called before there are other threads.
void inject_drift(const Flags& flags, const runtime::Communicator& world) {
  if (!flags.has("inject")) return;
  start_drift(core::parse_injection(flags.text("inject")), world);
}

int measure_collectives(const Flags& flags, const Invocation& invocation) {
  inject_drift(flags, *invocation.world);
  const auto opened = open_session(flags, invocation);
  Session& session = *opened;
  const auto& world = session.world();
  const auto map = find_nodes(session, read_fake_nodes(flags, world.size()));
  // If a rank has two or more cores, one of them is left to the progress thread.
  const int threads = std::max(1, session.cores_per_node() / session.ranks_per_node(world.size()) - 1);
  auto options = read_collective_options(flags, world.size(), threads);
  const std::string table_path = flags.has("write-table") ? flags.text("write-table") : "";
  const bool per_rank = flags.on("per-rank");
  std::vector<TimesOfRanks> times_of_points;
  return measure(
      measuring_ranks(session), flags, invocation,
      {.experiment = "allreduce",
       .points = plan_collectives(options, map).size(),
       .printers = {collective_tables, collective_csv()},
       .check =
           [&] {
             if (!table_path.empty()) check_measured_table(table_path, options);
           },
       .head = [&] { print_collectives_head(session, options.injection); },
       .measure =
           [&](const auto& finished, const auto& rows) {
             CollectiveListener listener{.rows = rows};
             if (per_rank)
               listener.ranks = [&](auto& p, auto& times) {
                 times_of_points.push_back(
                     {p.factors, {times.calls.begin(), times.calls.end()}, {times.alone.begin(), times.alone.end()}});
               };
             const auto tables = tuned_tables(session, flags, tables_of(plan_collectives(options, map), map));
             for (auto& a : options.algorithms) a = with_tables(a, tables);
             return run_collectives(session, map, options, finished, listener);
           },
       .legend =
           [&](auto points) {
             const auto by_rank = own_times_table(times_of_points, session);
             return below_tables(points, per_rank ? &by_rank : nullptr, table_width(flags), read_legend(flags));
           },
       .end =
           [&](auto points) {
             if (table_path.empty()) return core::ExitCode::done;
             write_measured_table(table_path, points, session.run_info());
             core::print(stderr, "gradmeter: {} has the algorithm with the least median time at each size\n",
                         table_path);
             return core::ExitCode::done;
           }});
}

Usage allreduce_usage() {
  return {.flags = describe_allreduce(),
          .about =
              "gradmeter allreduce: collectives, checked, timed in turn with those of MPI or NCCL, and compared with "
              "the least\n"
              "time possible\n"
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

void check_measured_table(const std::string& path, const CollectiveOptions& options) {
  need_one("--collective", options.collectives);
  if (options.collectives.front()->collective_kind != allreduce::CollectiveKind::all_reduce) {
    throw core::UsageError(fmt::format("--write-table is for allreduce, not {}", options.collectives.front()->name));
  }
  need_one("--datatype", options.elements);
  need_one("--op", options.ops);
  need_one("--transport", options.transports);
  need_one("--buffers", options.buffers);
  need_one("--in-place", options.in_place);
  need_one("--cudagraph", options.graph_launches);
  need_one("--cadence", options.cadences);
  need_one("--reduction", options.reductions);
  need_one("--overlap", options.overlaps);
  need_one("--accum-dtype", options.accumulate_wide);
  // `auto` chooses an algorithm and no codec, so times with a codec would decide between algorithms that run without
  // it.
  if (std::ranges::any_of(options.codecs, [](const auto& codec) { return codec != nullptr; }))
    throw core::UsageError("--write-table is for exchanges without a codec; leave --codec out");
  if (std::filesystem::exists(path)) {
    throw core::UsageError(fmt::format("--write-table {}: exists; remove it or give another name", path));
  }
}

void write_measured_table(const std::string& path, std::span<const core::Point> points, const core::RunInfo& run) {
  std::vector<allreduce::MeasuredSize> sizes;
  for (const auto& p : points) {
    if (p.status != core::Status::ok) continue;
    auto& size = sizes.emplace_back();
    size.bytes = static_cast<std::uint64_t>(p.factors[Factor::size_bytes].get<std::int64_t>());
    size.algorithm = factor_text(p, Factor::algorithm);
    const auto& time = p.metrics[core::Metric::time_s].get<core::Summary>();
    size.median_s = time.median;
    if (std::isfinite(time.ci95_low) && std::isfinite(time.ci95_high))
      size.low_s = time.ci95_low, size.high_s = time.ci95_high;
  }
  const allreduce::SizeTable table(allreduce::fit_table(sizes));
  const auto& first_point = points.front();
  const std::vector<std::string> comments{
      fmt::format("the least median time of each size, for gradmeter --algorithm auto:table={}", path),
      fmt::format("{} {} {} over {} on {}, buffers {}, in place {}", factor_text(first_point, Factor::collective),
                  factor_text(first_point, Factor::dtype), factor_text(first_point, Factor::op),
                  report::counted(run.ranks, "rank"), report::counted(run.nodes, "node"),
                  factor_text(first_point, Factor::buffers), factor_text(first_point, Factor::in_place)),
      fmt::format("{}, {}, {}, machine {}", run.time, run.cpu, run.mpi, run.fingerprint), run.command};
  std::ofstream file(path);
  file << table_file_text(table, comments, allreduce::sizes_without_proof(sizes));
  file.flush();
  if (!file) throw core::BackendError("system", "write", fmt::format("{} could not be written", path));
}

}  // namespace gradmeter::bench
