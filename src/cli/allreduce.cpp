// gradmeter allreduce: collectives in turn with the vendor's, with nccl-tests' flags and columns.
#include <cmath>
#include <cstdio>

#include "bench/collectives/collectives.hpp"
#include "cli/agree.hpp"
#include "cli/command.hpp"
#include "cli/devices.hpp"
#include "cli/flags/allreduce_flags.hpp"
#include "cli/measured_table.hpp"
#include "cli/output.hpp"
#include "cli/row_output.hpp"
#include "cli/terminal.hpp"
#include "core/format.hpp"
#include "core/print.hpp"
#include "core/table.hpp"
#include "report/cells.hpp"
#include "report/tables.hpp"
#include "runtime/host/launcher.hpp"
#include "runtime/mpi/session.hpp"
#include "runtime/process/progress.hpp"
#include "runtime/time/clock.hpp"

namespace gradmeter::cli {
namespace {

/// Without ranks the plan can only assume one node, unless nodes are faked.
bench::NodeMap planned_nodes(const std::vector<int>& fake, int world) {
  if (fake.empty()) return {.node_of = std::vector<int>(static_cast<std::size_t>(world), 0)};
  return {.node_of = fake, .fake = true};
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
  for (const auto& e : bench::estimate_collectives(options, map)) {
    const auto& p = e.point;
    const std::string what = fmt::format(
        "{}{} {} {} {}", p.algorithm->name, p.transport ? fmt::format("/{}", runtime::name(*p.transport)) : "",
        core::info(p.element).name, bench::name(p.buffers), p.in_place ? "in place" : "out of place");
    table.add_row({std::string(p.collective->name), fmt::format("{}", p.bytes()), what,
                   core::to_text(core::Bytes{e.bytes_per_rank}), fmt::format("{:.1f}", e.seconds_at_most)},
                  p.unsupported.empty() ? "" : fmt::format("unsupported: {}", p.unsupported));
    seconds += e.seconds_at_most;
    most = std::max(most, e.bytes_per_rank);
  }
  core::print("{}\n{} points on {} rank{}, at most {} in all, checks apart; {} a rank at once ({} free here)\n",
              table.to_string(table_width(f)), table.rows(), map.ranks(), map.ranks() == 1 ? "" : "s",
              core::to_text(core::Seconds{seconds}), core::to_text(core::Bytes{most}),
              core::to_text(core::Bytes{host.available_memory_bytes}));
  return 0;
}

void print_collectives_head(const bench::Session& s, const core::Injection& injected) {
  const auto& i = s.run_info();
  core::print("gradmeter {} ({})  {} ranks on {} node{}, {} cores a node  {}  {}\n", i.version, i.commit, i.ranks,
              i.nodes, i.nodes == 1 ? "" : "s", i.cores_per_node, i.cpu,
              i.mpi_threads.empty() ? i.mpi : fmt::format("{} ({})", i.mpi, i.mpi_threads));
  if (injected.any()) core::print("injected on purpose: {}\n", injected.text());
  core::print("\n");
  std::fflush(stdout);
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
                      {"95 %", "us", right},
                      {"alone", "us", right}});
}

/// A line for each rank.
void add_ranks(core::Table& table, const core::Point& p, const bench::PointRanks& ranks,
               const bench::Session& session) {
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

struct Display {
  Format format;
  std::size_t width;  ///< of tables
  bool per_rank;
  const Invocation& invocation;
};

int sweep(bench::Session& session, const bench::NodeMap& map, const bench::CollectiveOptions& options,
          const Display& display, core::ResultWriter* writer, Earlier earlier, const std::string& table) {
  const auto& world = session.world();
  const bool root = session.is_root();
  const auto finished = share_finished(world, std::move(earlier.finished));
  if (root && !earlier.note.empty()) core::print(stderr, "{}\n", earlier.note);
  const std::size_t total = bench::plan_collectives(options.factors, map).size();
  runtime::Progress progress("points", total, root);
  const auto& [format, width, per_rank, invocation] = display;
  core::Table ranks = own_times_table();
  RowOutput out(format, {report::collective_tables, report::collective_csv()}, width, session.run_info().run_id, writer,
                progress);
  if (root) out.head(session.run_info());
  if (root && format == Format::table) print_collectives_head(session, options.injection);
  try {
    bench::CollectiveListener listens{.rows = checking(out.listener(), session.device(), session.device_note())};
    if (per_rank) listens.ranks = [&](const auto& p, const auto& times) { add_ranks(ranks, p, times, session); };
    const std::size_t wrong = bench::run_collectives(session, map, options, finished, listens);
    if (root) out.finish();
    if (root && per_rank && format == Format::table) {
      core::print(
          "by rank: median of its own calls, waits included; alone: of the limit's work, in which nobody waits\n{}\n",
          ranks.to_string(width));
    }
    if (root && format == Format::table) {
      core::print("{}", report::collective_winners(out.points(), width));
      const std::string codecs = report::codec_comparison(out.points(), width);
      core::print("{}{}{}", codecs, report::collective_legend(),
                  codecs.empty() ? "" : report::codec_comparison_legend());
      out.close(invocation);
    }
    if (root && !table.empty()) {
      write_measured_table(table, out.points(), session.run_info());
      core::print(stderr, "gradmeter: {} has the fastest of each size\n", table);
    }
    if (root && wrong) {
      core::print(stderr, "gradmeter: {} of {} points gave wrong results: their times mean nothing\n", wrong, total);
    }
    return static_cast<int>(wrong ? core::ExitCode::wrong_result : core::ExitCode::done);
  } catch (const core::Interrupted&) {
    if (root) {
      out.finish();
      core::print(stderr, "gradmeter: interrupted after {} of {} points{}\n", out.count(), total,
                  writer ? fmt::format("; they are in {}: go on with --resume", writer->path().string()) : "");
    }
    throw;
  }
}

/// Before there are other threads.
void inject_drift(const Flags& f, const runtime::Communicator& world) {
  if (!f.has("inject")) return;
  start_drift(core::parse_injection(f.text("inject")), world);
}

int measure_collectives(const Flags& f, const Invocation& invocation) {
  inject_drift(f, *invocation.world);
  bench::Session session(*invocation.world, invocation.process, parse_time("--timeout", f.text("timeout")),
                         invocation.command_line);
  const auto& world = session.world();
  check_only("--device", f.text("device"), device_names);
  const OpenedDevice device = open_device(f.text("device"), world);
  session.compute_on(device.device, device.note, device.gauge);
  if (session.is_root() && !device.note.empty()) core::print(stderr, "{}\n", device.note);
  const auto map = bench::find_nodes(session, read_fake_nodes(f, world.size()));
  // One core of a rank's share is the progress thread's, where there are two.
  const int threads = std::max(1, session.cores_per_node() / session.ranks_per_node(world.size()) - 1);
  const auto options = read_collective_options(f, world.size(), threads);
  const Display display{read_format(f), table_width(f), f.on("per-rank"), invocation};
  const OutputFlags output = read_output_flags(f);
  Earlier earlier;
  const std::string table = f.has("write-table") ? f.text("write-table") : "";
  agree(world, [&] {
    if (!table.empty()) check_measured_table(table, options.factors);
    earlier = check_output(output, session.run_info(), "allreduce");
  });
  core::ResultWriter* writer = nullptr;
  agree(world, [&] { writer = invocation.output->open(output, session.run_info()); });
  return sweep(session, map, options, display, writer, std::move(earlier), table);
}

}  // namespace

Usage allreduce_usage() {
  return {.flags = describe_allreduce(),
          .about =
              "gradmeter allreduce: collectives checked, timed in turn with the vendor's, and held against the limit\n"
              "\n"
              "mpirun -np 4 gradmeter allreduce -b 8 -e 64M -f 4 --algorithm mpi,ring --out r.jsonl"};
}

int run_allreduce_command(const Flags& flags, const Invocation& invocation) {
  return flags.on("dry-run") ? print_collectives_plan(flags) : measure_collectives(flags, invocation);
}

}  // namespace gradmeter::cli
