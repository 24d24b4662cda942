// SPDX-License-Identifier: Apache-2.0
// The options of `gradmeter links`.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <optional>

#include "analysis/links.hpp"
#include "bench/engine/command.hpp"
#include "bench/engine/flags.hpp"
#include "bench/engine/measuring.hpp"
#include "bench/engine/output.hpp"
#include "bench/links/links.hpp"
#include "bench/links/tournament.hpp"
#include "core/error.hpp"
#include "core/format.hpp"
#include "core/print.hpp"
#include "runtime/communicator.hpp"
#include "runtime/process/progress.hpp"

namespace gradmeter::bench {

FlagList describe_links();

struct LinkRequest {
  LinkOptions options;
  std::optional<double> fail_below;   ///< share of the usual bandwidth
  std::optional<core::Seconds> soak;  ///< the length of a soak, which has one pattern and one size
};
/// Errors: UsageError of one line.
LinkRequest read_link_request(const Flags&, int ranks, runtime::RanksAs);

namespace {

using core::UsageError;

runtime::TransportKind read_transport(const Flags& flags, runtime::RanksAs ranks_as) {
  if (!flags.has("transport")) {
    return ranks_as == runtime::RanksAs::threads ? runtime::TransportKind::shm : runtime::TransportKind::mpi;
  }
  std::vector<runtime::TransportKind> choices;
  for (const auto& row : runtime::transport_table()) choices.push_back(row.kind);
  const auto chosen = choose("--transport", "transport", flags.text("transport"), choices,
                             [](auto k) { return std::string(runtime::name(k)); });
  if (chosen.size() != 1) throw UsageError("--transport takes one value: give each a run of its own, with --append");
  if (const auto why = runtime::transport_refusal(chosen.front(), ranks_as, "cpu"); !why.empty()) throw UsageError(why);
  return chosen.front();
}

std::vector<std::size_t> read_message_sizes(const Flags& flags) {
  constexpr std::size_t most = std::size_t{1} << 30;
  std::vector<std::size_t> out;
  for (const auto& item : split_list("--size", flags.text("size"))) {
    const std::size_t bytes = parse_size("--size", item);
    if (bytes == 0 || bytes > most) throw UsageError(fmt::format("--size {}: a message has 1 byte to 1G", item));
    out.push_back(bytes);
  }
  return out;
}

core::Injection read_link_injection(const Flags& flags, int ranks) {
  if (!flags.has("inject")) return {};
  const auto injection = core::parse_injection(flags.text("inject"));
  injection.check_ranks(ranks);
  if (!flags.has("soak")) injection.check_lasting();
  if (injection.omit || injection.drift || injection.messages.any()) {
    throw UsageError("--inject: links has no sums, no schedules and compares no clocks; it knows slow and flip");
  }
  return injection;
}

/// Reads --soak, if given. A soak repeats one point, so flags for several points, and those that end it early, are
/// refused.
void read_soak(const Flags& flags, LinkRequest& r) {
  if (!flags.has("soak")) return;
  r.soak = parse_time("--soak", flags.text("soak"));
  auto& factors = r.options.factors;
  if (!flags.given("pattern")) factors.patterns = {LinkPattern::one_way};
  const auto pattern = factors.patterns.front();
  if (factors.patterns.size() != 1 || factors.sizes.size() != 1 ||
      (pattern != LinkPattern::one_way && pattern != LinkPattern::both_ways)) {
    throw UsageError("--soak repeats one point: give one --size and one --pattern, one-way or both-ways");
  }
  for (const char* other : {"fail-below", "time-budget", "pairs-at-once"}) {
    if (flags.has(other)) throw UsageError(fmt::format("--{} has no meaning with --soak: leave it out", other));
  }
  if (flags.on("resume")) throw UsageError("--resume: a soak cannot go on where it ended; --append adds another");
}

}  // namespace

FlagList describe_links() {
  FlagList flags(heading_of_factors, 110);
  add_switch(flags, "help,h", "this text");
  add_text(flags, "pattern", "one-way,bisection",
           "one-way (latency and bandwidth of every pair), both-ways (osu_bibw), multi-pair (osu_mbw_mr), bisection, "
           "bisection-random, groups (finds slow ranks by halving groups, for many ranks)");
  add_text(flags, "size", "128K", "bytes of a message: 8,64K,1M");
  add_text(flags, "outstanding", "16", "messages in flight at once: a window");
  add_text(flags, "pairs-at-once", "",
           "maximum number of pairs that communicate at the same time; default: half of the ranks");
  add_text(flags, "transport", "",
           "what moves the bytes: mpi, shm, hybrid, auto; default: mpi; with --thread-ranks: shm");
  add_text(flags, "interconnect", "", "your label for the network between the ranks, stored with every point");
  add_text(
      flags, "fail-below", "",
      "exit 1 if a link has less than this share of the usual bandwidth, or a latency above the usual one divided by "
      "this share: 0.8");
  add_text(flags, "soak", "",
           "repeat one point for this time (30s, 8h), and show drift, outliers, disturbances and their hosts; "
           "--inject slow:rank=1,factor=2,after=10,for=5 slows rank 1 for 5 s of it");
  add_stopping_flags(
      flags, {.budget = "for all points together: 90s, 10m; default: 20 s for all links of a size",
              .samples = "minimum number of windows of each link",
              .goal = "a link is done when its 95 % interval is within this share of the median: 0.025 is ± 2.5 %"});
  add_text(flags, "inject", "",
           "faults to inject, to see whether they are found: slow:rank=1,factor=2; flip:call=40,rank=0 (data are wrong "
           "from that message on)");
  add_rank_flags(flags);
  add_switch(flags, "dry-run", "only list the points, with their memory; measure nothing");
  add_format_flags(flags);
  add_output_flags(flags);
  return flags;
}

LinkRequest read_link_request(const Flags& flags, int ranks, runtime::RanksAs ranks_as) {
  if (ranks < 2) throw UsageError("links: one rank has no links; start two or more (mpirun -np 2 gradmeter links)");
  LinkRequest r;
  auto& options = r.options;
  options.factors.patterns = choose("--pattern", "pattern", flags.text("pattern"), link_patterns(),
                                    [](auto p) { return std::string(name(p)); });
  options.factors.sizes = read_message_sizes(flags);
  options.factors.outstanding = parse_count("--outstanding", flags.text("outstanding"), 1, 4096);
  if (flags.has("pairs-at-once")) {
    options.factors.pairs_at_once =
        static_cast<int>(parse_count("--pairs-at-once", flags.text("pairs-at-once"), 1, 1u << 20));
  }
  options.factors.transport = read_transport(flags, ranks_as);
  if (flags.has("interconnect")) options.factors.interconnect = read_label(flags, "interconnect");
  options.factors.injection = read_link_injection(flags, ranks);
  if (flags.has("fail-below")) r.fail_below = parse_number("--fail-below", flags.text("fail-below"), 0, 1);
  read_stopping(flags, options.rule, options.time_budget);
  read_soak(flags, r);
  if (r.fail_below &&
      std::ranges::find(options.factors.patterns, LinkPattern::one_way) == options.factors.patterns.end()) {
    throw UsageError("--fail-below judges the links of the pattern one-way only; add it to --pattern");
  }
  return r;
}

// gradmeter links: latency and bandwidth of every pair of ranks, and the links and hosts that are slower than others.

namespace {

std::size_t window_bytes(const LinkFactors& f) {
  return *std::max_element(f.sizes.begin(), f.sizes.end()) * f.outstanding;
}

int print_links_plan(const Flags& flags) {
  const auto launcher = planned_launcher(flags);
  if (launcher.rank != 0) return 0;
  read_format(flags);
  read_output_flags(flags);
  const auto as = flags.has("thread-ranks") ? runtime::RanksAs::threads : runtime::RanksAs::processes;
  const auto request = read_link_request(flags, launcher.size, as);
  const auto& factors = request.options.factors;
  if (request.soak) {
    core::print("{} of {}, a row for each of {} ranks every {}\n", core::to_text(*request.soak),
                name(factors.patterns.front()), launcher.size,
                core::to_text(soak_interval(*request.soak, launcher.size)));
    return 0;
  }
  for (const auto& g : link_groups(factors)) {
    core::print("{} {}: {}\n", name(g.pattern), core::to_text(core::Bytes{g.size_bytes}),
                report::counted(plan_links(factors, g, launcher.size).size(), "point"));
  }
  core::print("{} on {} ranks; every link once takes {} of disjoint pairs; {} a rank\n",
              report::counted(count_links(factors, launcher.size), "point"), launcher.size,
              report::counted(tournament_rounds(launcher.size), "round"),
              core::to_text(core::Bytes{2 * window_bytes(factors)}));
  return 0;
}

void print_links_head(const Session& s, const core::Injection& injected) {
  const auto& i = s.run_info();
  core::print("{}  {}  {}\n{}\n", head_line(i, "links"), i.cpu, i.mpi, injection_line(injected));
}

/// Prints the links that are below --fail-below, and returns the exit code.
core::ExitCode end(const LinkRequest& request, std::span<const core::Point> points) {
  if (!request.fail_below) return core::ExitCode::done;
  const bool has_judged = std::ranges::any_of(points, [](const core::Point& p) {
    return p.status == core::Status::ok && report::text(p.factors[core::Factor::pattern]) == name(LinkPattern::one_way);
  });
  if (!has_judged) {
    core::print(stderr, "gradmeter: --fail-below {}: no link was measured, so none could be judged; give more time\n",
                *request.fail_below);
    return core::ExitCode::missed_target;
  }
  const auto below = analysis::links_below(points, *request.fail_below);
  for (const auto& link : below) core::print(stderr, "gradmeter: below {}: {}\n", *request.fail_below, link);
  return below.empty() ? core::ExitCode::done : core::ExitCode::missed_target;
}

/// The parts in which links and a soak differ.
struct LinkExperiment {
  std::size_t total;  ///< points; 0: unknown
  RowPrinters printers;
  std::string (*legend)(report::Legend);
  std::function<std::size_t(const FinishedRows&, const RowListener&)> run;
};

LinkExperiment experiment_of(Session& session, const LinkRequest& request) {
  if (request.soak) {
    const double intervals = request.soak->value / soak_interval(*request.soak, session.world().size()).value;
    return {.total = static_cast<std::size_t>(std::ceil(intervals)) * static_cast<std::size_t>(session.world().size()),
            .printers = {soak_tables, soak_csv()},
            .legend = soak_legend,
            .run = [&session, &request](const auto&, const auto& listener) {
              return run_soak(session, {request.options.factors, *request.soak}, listener);
            }};
  }
  return {.total = count_links(request.options.factors, session.world().size()),
          .printers = {link_tables, link_csv()},
          .legend = link_legend,
          .run = [&session, &request](const auto& finished, const auto& listener) {
            return run_links(session, request.options, finished, listener);
          }};
}

int measure_links(const Flags& flags, const Invocation& invocation) {
  const auto session = open_session(flags, invocation);
  const auto& world = session->world();
  const auto request = read_link_request(flags, world.size(), world.ranks_as());
  const LinkExperiment experiment = experiment_of(*session, request);
  return measure(measuring_ranks(*session), flags, invocation,
                 {.experiment = request.soak ? "soak" : "links",
                  .points = experiment.total,
                  .printers = experiment.printers,
                  .can_resume = !request.soak,
                  .head = [&] { print_links_head(*session, request.options.factors.injection); },
                  .measure = experiment.run,
                  .legend = [&](auto) { return experiment.legend(read_legend(flags)); },
                  .wrong_message = "had messages that were not what was sent",
                  .end = [&](auto points) { return end(request, points); }});
}

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

}  // namespace

extern const Command links_command{
    .name = "links",
    .summary = "latency and bandwidth of every pair of ranks, and which links and hosts are slow",
    .with_ranks = true,
    .usage = links_usage,
    .run = run_links_command,
    .progress_flag = std::nullopt};

}  // namespace gradmeter::bench
