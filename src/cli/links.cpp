// gradmeter links: latency and bandwidth of every pair of ranks, and the links and hosts that are slower than others.
#include <algorithm>
#include <cstdio>
#include <functional>

#include "analysis/links.hpp"
#include "bench/links/links.hpp"
#include "bench/links/soak.hpp"
#include "bench/links/tournament.hpp"
#include "cli/agree.hpp"
#include "cli/command.hpp"
#include "cli/flags/links_flags.hpp"
#include "cli/output.hpp"
#include "cli/row_output.hpp"
#include "cli/terminal.hpp"
#include "core/format.hpp"
#include "core/print.hpp"
#include "report/tables.hpp"
#include "runtime/process/progress.hpp"

namespace gradmeter::cli {
namespace {

std::size_t window_bytes(const bench::LinkFactors& f) {
  return *std::max_element(f.sizes.begin(), f.sizes.end()) * f.outstanding;
}

int print_links_plan(const Flags& f) {
  const auto launcher = planned_launcher(f);
  if (launcher.rank != 0) return 0;
  read_format(f);
  read_output_flags(f);
  const auto as = f.has("thread-ranks") ? runtime::RanksAs::threads : runtime::RanksAs::processes;
  const auto request = read_link_request(f, launcher.size, as);
  const auto& factors = request.options.factors;
  if (request.soak) {
    core::print("{} of {}, a row for each of {} ranks every {}\n", core::to_text(*request.soak),
                bench::name(factors.patterns.front()), launcher.size,
                core::to_text(bench::soak_interval(*request.soak, launcher.size)));
    return 0;
  }
  for (const auto& g : bench::link_groups(factors)) {
    core::print("{} {}: {} points\n", bench::name(g.pattern), core::to_text(core::Bytes{g.size_bytes}),
                bench::plan_links(factors, g, launcher.size).size());
  }
  core::print("{} points on {} ranks; every link once takes {} rounds of disjoint pairs; {} a rank\n",
              bench::count_links(factors, launcher.size), launcher.size, bench::tournament_rounds(launcher.size),
              core::to_text(core::Bytes{2 * window_bytes(factors)}));
  return 0;
}

void print_links_head(const bench::Session& s, const core::Injection& injected) {
  const auto& i = s.run_info();
  core::print("gradmeter {} ({})  links  {} ranks on {} node{}  {}  {}\n{}\n", i.version, i.commit, i.ranks, i.nodes,
              i.nodes == 1 ? "" : "s", i.cpu, i.mpi, injection_line(injected));
  std::fflush(stdout);
}

/// On rank 0. What to say of the links that are below the bar, and the exit code.
int end(const LinkRequest& request, std::span<const core::Point> points, std::size_t wrong) {
  if (wrong > 0) {
    core::print(stderr, "gradmeter: {} points had messages that were not what was sent\n", wrong);
    return static_cast<int>(core::ExitCode::wrong_result);
  }
  if (!request.fail_below) return static_cast<int>(core::ExitCode::done);
  const auto below = analysis::links_below(points, *request.fail_below);
  for (const auto& link : below) core::print(stderr, "gradmeter: below {}: {}\n", *request.fail_below, link);
  return static_cast<int>(below.empty() ? core::ExitCode::done : core::ExitCode::below_bar);
}

struct LinkDisplay {
  Format format;
  std::size_t width;  ///< of tables
  const Invocation& invocation;
};

/// What links and a soak do differently.
struct LinkExperiment {
  std::size_t total;  ///< points; 0: unknown
  RowPrinters printers;
  std::string (*legend)();
  std::function<std::size_t(const bench::FinishedRows&, const bench::RowListener&)> run;
};

LinkExperiment experiment_of(bench::Session& session, const LinkRequest& request) {
  if (request.soak) {
    const double rows = request.soak->value / bench::soak_interval(*request.soak, session.world().size()).value;
    return {.total = static_cast<std::size_t>(rows) * static_cast<std::size_t>(session.world().size()),
            .printers = {report::soak_tables, report::soak_csv()},
            .legend = report::soak_legend,
            .run = [&session, &request](const auto&, const auto& listener) {
              return bench::run_soak(session, {request.options.factors, *request.soak}, listener);
            }};
  }
  return {.total = bench::count_links(request.options.factors, session.world().size()),
          .printers = {report::link_tables, report::link_csv()},
          .legend = report::link_legend,
          .run = [&session, &request](const auto& finished, const auto& listener) {
            return bench::run_links(session, request.options, finished, listener);
          }};
}

int sweep_links(bench::Session& session, const LinkRequest& request, const LinkDisplay& display,
                core::ResultWriter* writer, Earlier earlier) {
  const auto& world = session.world();
  const bool root = session.is_root();
  const auto finished = share_finished(world, std::move(earlier.finished));
  if (root && !earlier.note.empty()) core::print(stderr, "{}\n", earlier.note);
  const LinkExperiment experiment = experiment_of(session, request);
  runtime::Progress progress("points", experiment.total, root);
  RowOutput out(display.format, experiment.printers, display.width, session.run_info().run_id, writer, progress);
  if (root) out.head(session.run_info());
  if (root && display.format == Format::table) print_links_head(session, request.options.factors.injection);
  try {
    const std::size_t wrong = experiment.run(finished, out.listener());
    if (root) out.finish();
    if (root && display.format == Format::table) {
      core::print("{}", experiment.legend());
      out.close(display.invocation);
    }
    return world.broadcast_value(root ? end(request, out.points(), wrong) : 0);
  } catch (const core::Interrupted&) {
    if (root) {
      out.finish();
      core::print(stderr, "gradmeter: interrupted after {} of {} points{}\n", out.count(), experiment.total,
                  writer ? fmt::format("; they are in {}{}", writer->path().string(),
                                       request.soak ? "" : ": go on with --resume")
                         : "");
    }
    throw;
  }
}

int measure_links(const Flags& f, const Invocation& invocation) {
  bench::Session session(*invocation.world, invocation.process, parse_time("--timeout", f.text("timeout")),
                         invocation.command_line);
  const auto& world = session.world();
  const auto request = read_link_request(f, world.size(), world.ranks_as());
  const LinkDisplay display{read_format(f), table_width(f), invocation};
  const OutputFlags output = read_output_flags(f);
  Earlier earlier;
  agree(world, [&] { earlier = check_output(output, session.run_info(), request.soak ? "soak" : "links"); });
  core::ResultWriter* writer = nullptr;
  agree(world, [&] { writer = invocation.output->open(output, session.run_info()); });
  return sweep_links(session, request, display, writer, std::move(earlier));
}

}  // namespace

Usage links_usage() {
  return {.flags = describe_links(),
          .about =
              "gradmeter links: latency and bandwidth of every pair of ranks, and which links and hosts are slow\n"
              "\n"
              "mpirun -np 8 --map-by ppr:1:node gradmeter links --out links.jsonl"};
}

int run_links_command(const Flags& flags, const Invocation& invocation) {
  return flags.on("dry-run") ? print_links_plan(flags) : measure_links(flags, invocation);
}

}  // namespace gradmeter::cli
