// SPDX-License-Identifier: Apache-2.0
// The command `gradmeter scale`: its flags, its plan, its run, and the tables of --per-bucket and --per-rank.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <set>
#include <span>
#include <string>

#include "bench/engine/command.hpp"
#include "bench/engine/devices.hpp"
#include "bench/engine/flags.hpp"
#include "bench/engine/measuring.hpp"
#include "bench/engine/output.hpp"
#include "bench/scale/scale.hpp"
#include "bench/train/flags.hpp"
#include "compression/registry.hpp"
#include "core/format.hpp"
#include "core/print.hpp"
#include "core/table.hpp"
#include "dataparallel/optimizers/optimizer.hpp"
#include "runtime/host/environment.hpp"
#include "runtime/host/host.hpp"

namespace gradmeter::bench {

/// One point's exchange bucket by bucket (--per-bucket), with the sum of exposed times beside the row's exposed time.
/// Without buckets, a line says why there are none.
std::string bucket_table(const core::Point&, std::span<const BucketTimes>, std::size_t width);

/// One point rank by rank (--per-rank): compute time at the point and under the control, and waits for other ranks.
std::string rank_table(const core::Point&, std::span<const RankTimes>, std::size_t width);

namespace {

using core::UsageError;

FlagList curve_flags() {
  FlagList flags(heading_of_factors);
  add_switch(flags, "help,h", "this text");
  add_training_flags(flags, Values::list);
  add_text(flags, "ranks", "", "numbers of ranks to measure; default: 1,2,4 … up to all");
  add_text(flags, "placement", "packed",
           "which ranks take part: packed (fill a node before the next), spread (one of each node in turn)");
  add_text(flags, "scaling", "weak", "weak (--batch is per worker), strong (--batch is for all workers together)");
  add_text(flags, "cadence", "barrier",
           "how ranks are synchronised between steps: barrier; none; window: all begin at an agreed time");
  add_text(flags, "interconnect", "", "your label for the network between the ranks, stored with every point");
  add_text(flags, "optimizer", "sgd",
           "optimizer of the timed steps: sgd, momentum:mu=0.9, adamw, lars …; --learn uses each strategy's usual one; "
           "see list optimizers");
  add_stopping_flags(flags,
                     {.budget = "for all points together: 90s, 10m, 2h; default 5 s a point",
                      .samples = "minimum number of steps for each point",
                      .strict = "on one rank, make communication flags an error instead of ignoring them; and refuse "
                                "a --time-budget that cannot be kept"});
  add_text(flags, "learn", "",
           "also train each point on this many samples, and show the accuracy after equal samples and equal time");
  add_text(flags, "lr-rule", "",
           "with --learn: constant, linear:batch=64, sqrt:batch=64, where batch is the global batch at which the usual "
           "step size holds; default: sqrt for Adam, AdamW and LAMB, otherwise linear");
  add_text(flags, "warmup", "0.1",
           "with --learn: epochs in which the step size grows from the usual one to the scaled one; 0: no warm-up");
  add_injection(flags);
  add_rank_flags(flags);
  add_switch(
      flags, "per-bucket",
      "add a table of gradient buckets: when each was ready and sent, and how much of its communication was exposed");
  add_switch(
      flags, "per-rank",
      "add a table of ranks: time in kernels and in waiting, which shows the slow rank and those that wait for it");
  add_switch(flags, "dry-run", "only list the points, with their time and memory; measure nothing");
  add_format_flags(flags);
  add_output_flags(flags);
  return flags;
}

std::vector<int> default_ranks(int world) {
  std::vector<int> out;
  for (int r = 1; r < world; r *= 2) out.push_back(r);
  out.push_back(world);
  return out;
}

std::vector<Scaling> parse_scalings(const std::string& text) {
  std::vector<Scaling> out;
  for (const auto& item : split_list("--scaling", text)) {
    if (item == "weak" || item == "all") out.push_back(Scaling::weak);
    if (item == "strong" || item == "all") out.push_back(Scaling::strong);
    if (item != "weak" && item != "strong" && item != "all") {
      throw UsageError(fmt::format("scaling '{}' is not known; there are: strong, weak", item));
    }
  }
  return out;
}

std::vector<int> parse_ranks(const Flags& flags, int world) {
  if (!flags.has("ranks")) return default_ranks(world);
  auto ranks = to_ints(parse_counts("--ranks", flags.text("ranks"), 1, 1u << 20));
  for (int r : ranks) {
    if (r > world) {
      throw UsageError(fmt::format("--ranks {}: the world has {}; start it with mpirun -np {}", r, world, r));
    }
  }
  return ranks;
}

/// Reads all that flags alone decide, so that it is the same on every rank.
ScaleOptions read_options(const Flags& flags, int world, int default_threads, const TrainingDataFacts& data,
                          const NodeMap& map, int cores_per_node) {
  ScaleOptions options;
  options.factors = read_training_flags(flags, data, default_threads);
  refuse_emulated(flags, options.factors.models, data);
  options.factors.codecs = compression::require_no_warm_up(std::move(options.factors.codecs));
  options.factors.ranks = parse_ranks(flags, world);
  const auto choices = placements();
  options.factors.placements =
      choose("--placement", "placement", flags.text("placement"),
             std::vector<Placement>(choices.begin(), choices.end()), [](auto p) { return std::string(name(p)); });
  options.factors.map = map;
  options.factors.cores_per_node = cores_per_node;
  options.factors.scalings = parse_scalings(flags.text("scaling"));
  options.factors.cadences = parse_cadences(flags.text("cadence"));
  if (flags.has("interconnect")) options.factors.interconnect = read_label(flags, "interconnect");
  dataparallel::make_optimizer(flags.text("optimizer"), {.elements = 1});
  options.factors.common.optimizer = flags.text("optimizer");
  options.factors.common.device = flags.text("device");
  options.factors.common.injection = read_injection(flags, world);
  options.data_directory = data_directory(flags);
  if (flags.has("learn")) {
    options.learn_samples = parse_count("--learn", flags.text("learn"), 1, std::uint64_t{1} << 40);
    require_learning("--learn", flags, options.factors.models, data);
    options.learning_rule.warmup_epochs = parse_number("--warmup", flags.text("warmup"), 0, 1e6);
    if (flags.has("lr-rule")) options.learning_rule.step_rule = StepSizeRule(flags.text("lr-rule"));
    if (options.learning_rule.step_rule &&
        options.learning_rule.step_rule->name().find("cosine") != std::string::npos) {
      throw UsageError(
          "--lr-rule cosine ends with the run, and --learn takes the accuracy at two times; take linear, sqrt or "
          "constant");
    }
  } else if (flags.has("lr-rule")) {
    throw UsageError("--lr-rule is of --learn, since a timed step is the same with every size; add --learn SAMPLES");
  }
  read_stopping(flags, options.rule, options.time_budget);
  for (const auto& p : plan_scale(options.factors))
    if (p.impossible.empty()) check_enough(data, options.data_directory, p.batch_global);
  return options;
}

std::string unused_note(const Flags& flags, const ScaleFactors& factors) {
  ExchangeFactors used;
  // Flags of points that cannot be measured count as used: a row that says why it cannot be measured is a valid result.
  for (const auto& p : plan_scale(factors)) used |= p.impossible.empty() ? p.applies : exchange_factors(*p.strategy);
  return unused_note("scale", flags, used, *std::ranges::max_element(factors.ranks));
}

std::string point_text(const ScalePoint& p) {
  return fmt::format("{}{}{}", p.strategy->name, p.algorithm ? fmt::format(" {}", p.algorithm->name) : "",
                     p.codec ? fmt::format(" {}", p.codec->label) : "");
}

/// The factors of a planned point that are known without ranks.
core::Factors planned_factors(const ScalePoint& p) {
  using core::Factor;
  core::Factors f;
  fill_training(p, p.applies, f);
  if (p.applies.transport) f[Factor::transport] = std::string(runtime::name(p.transport));
  if (p.placement) f[Factor::placement] = std::string(name(*p.placement));
  f[Factor::cadence] = std::string(runtime::name(p.cadence));
  return f;
}

/// The text of the table's own columns for a point; factors that it names are not repeated.
std::string row_text(const ScalePoint& p) {
  return fmt::format("{} {} {} {} {}", p.ranks, p.scaling ? name(*p.scaling) : "-", p.batch_per_rank, p.model,
                     point_text(p));
}

/// The number of ranks that the plan is for. Without a launcher it is the largest number that was asked for.
int planned_world(const Flags& flags, const runtime::Launcher& launcher) {
  if (!launcher.name.empty() || !flags.has("ranks")) return launcher.size;
  auto ranks = to_ints(parse_counts("--ranks", flags.text("ranks"), 1, 1u << 20));
  return *std::max_element(ranks.begin(), ranks.end());
}

int print_curve_plan(const Flags& flags) {
  const auto launcher = planned_launcher(flags);
  if (launcher.rank != 0) return 0;
  const auto host = runtime::read_host();
  const int cores = static_cast<int>(std::max<std::size_t>(1, host.available_units));
  const int world = planned_world(flags, launcher);
  const auto options =
      read_options(flags, world, std::max(1, cores / world), read_data_shape(data_directory(flags)), {}, cores);
  if (const auto note = unused_note(flags, options.factors); !note.empty()) core::print(stderr, "{}\n", note);
  read_output_flags(flags);
  core::Table table({{"ranks", "", core::Align::right},
                     {"scaling", "", core::Align::left},
                     {"batch", "/rank", core::Align::right},
                     {"model", "", core::Align::left},
                     {"point", "", core::Align::left},
                     {"memory", "/rank", core::Align::right},
                     {"at most", "s", core::Align::right}});
  double seconds = 0;
  // Bytes by curve: all points of a curve are in memory while they take turns.
  std::map<std::size_t, std::size_t> at_once;
  const auto plan = estimate_scale(options);
  std::vector<core::Factors> factors;
  std::vector<std::string> rows;
  for (const auto& e : plan) {
    factors.push_back(planned_factors(e.point));
    rows.push_back(row_text(e.point));
  }
  const auto further = report::distinguishing_factors(factors, rows);
  for (std::size_t i = 0; i < plan.size(); ++i) {
    const auto& e = plan[i];
    const auto& p = e.point;
    table.add_row(
        {fmt::format("{}", p.ranks), p.scaling ? std::string(name(*p.scaling)) : "-",
         fmt::format("{}", p.batch_per_rank), p.model, point_text(p) + report::values_text(factors[i], further),
         core::to_text(core::Bytes{e.bytes_per_rank}), fmt::format("{:.1f}", e.seconds_at_most)},
        p.impossible.empty() ? "" : "unsupported: " + p.impossible);
    seconds += e.seconds_at_most;
    at_once[p.curve] += e.bytes_per_rank * static_cast<std::size_t>(p.ranks);
  }
  std::size_t most = 0;
  for (const auto& [curve, bytes] : at_once) most = std::max(most, bytes);
  core::print("{}\n{}, at most {} in all; up to {} of memory at once over all ranks ({} free here)\n",
              table.to_string(table_width(flags)), report::counted(table.rows(), "point"),
              core::to_text(core::Seconds{seconds}), core::to_text(core::Bytes{most}),
              core::to_text(core::Bytes{host.available_memory_bytes}));
  return 0;
}

/// Prints the machine and the injected faults, without which a table cannot be read.
void print_curve_head(const Session& s, const core::Injection& injection) {
  const auto& i = s.run_info();
  core::print("{}, {} cores a node  {}  {}\n{}\n", head_line(i, ""), i.cores_per_node, i.cpu, i.mpi,
              injection_line(injection));
}

/// Prints for which numbers of ranks automatic overlap is off, and why.
void print_overlap(const ScaleFactors& f) {
  using enum Overlap;
  const auto asked = [&f](Overlap o) { return std::find(f.overlaps.begin(), f.overlaps.end(), o) != f.overlaps.end(); };
  if (!asked(automatic) || asked(none)) return;
  std::set<int> off;
  for (const auto& p : plan_scale(f)) {
    if (p.applies.overlap && p.overlap == none) off.insert(p.ranks);
  }
  if (off.empty()) return;
  core::print("no spare core with {} rank{}: overlap off (--overlap bucketed turns it on)\n\n", fmt::join(off, ", "),
              off == std::set{1} ? "" : "s");
}

/// The tables of `auto` for all numbers of ranks and transports.
std::vector<WantedTable> tables_of(const Session& s, const ScaleFactors& factors, const TrainingDataFacts& data) {
  std::vector<WantedTable> out;
  for (const auto& p : plan_scale(factors)) {
    if (!p.impossible.empty()) continue;
    const auto placement = p.placement.value_or(Placement::packed);
    const NodeMap map = s.map_for(p.ranks, placement);
    if (!refusal(p, data, map).empty()) continue;
    if (auto table = wanted_table(p, data, map, s.ranks_for(p.ranks, placement)))
      add_wanted_table(out, *std::move(table));
  }
  return out;
}

int measure_curve(const Flags& flags, const Invocation& invocation) {
  const auto opened = open_session(flags, invocation);
  Session& session = *opened;
  const auto& world = session.world();
  const int threads = std::max(1, session.cores_per_node() / session.ranks_per_node(world.size()));
  const TrainingDataFacts data = agree_on_data(world, data_directory(flags));
  auto options = read_options(flags, world.size(), threads, data, session.map(), session.cores_per_node());
  const auto& injection = options.factors.common.injection;
  if (const auto note = unused_note(flags, options.factors); session.is_root() && !note.empty())
    core::print(stderr, "{}\n", note);
  std::string ranks, buckets;  // the tables of --per-rank and of --per-bucket
  return measure(
      measuring_ranks(session), flags, invocation,
      {.experiment = "scale",
       .points = plan_scale(options.factors).size(),
       .printers = {scale_tables, scale_csv()},
       .head =
           [&] {
             print_curve_head(session, injection);
             print_overlap(options.factors);
           },
       .measure =
           [&](const auto& finished, const auto& rows) {
             start_drift(injection, world);
             ScaleListener listener{.rows = rows,
                                    .ranks = [&](auto& p, auto r) { ranks += rank_table(p, r, table_width(flags)); },
                                    .buckets = {}};
             if (flags.on("per-bucket"))
               listener.buckets = [&](auto& p, auto b) { buckets += bucket_table(p, b, table_width(flags)); };
             const auto tables = tuned_tables(session, flags, tables_of(session, options.factors, data));
             for (auto& a : options.factors.algorithms) a = with_tables(a, tables);
             return run_scale(session, options, finished, listener);
           },
       .legend =
           [&](auto points) {
             return fmt::format("{}{}{}", scale_legend(points, read_legend(flags)),
                                flags.on("per-rank") ? "\n" + ranks : "", flags.on("per-bucket") ? "\n" + buckets : "");
           }});
}

Usage scale_usage() {
  return {.flags = curve_flags(),
          .about =
              "gradmeter scale: scaling curves of real training steps\n"
              "\n"
              "mpirun -np 4 gradmeter scale --batch 16,64,256 --ranks 1,2,4 --out r.jsonl"};
}

int run_scale_command(const Flags& flags, const Invocation& invocation) {
  return flags.on("dry-run") ? print_curve_plan(flags) : measure_curve(flags, invocation);
}

}  // namespace

extern const Command scale_command{
    .name = "scale",
    .summary = "scaling curves over ranks, mini-batch, strategy, all-reduce: the main job",
    .with_ranks = true,
    .usage = scale_usage,
    .run = run_scale_command};

namespace {

std::string ms(double seconds) { return fmt::format("{:.3g}", 1e3 * seconds); }

std::string head(const core::Point& p) {
  using core::Factor;
  const auto text = [&](Factor f) { return core::is_null(p.factors[f]) ? "-" : core::to_text(p.factors[f]); };
  return fmt::format("{} · {} ranks · batch {} · {} · {} · {} · codec {} · buckets on the rank that computed longest\n",
                     text(Factor::model), text(Factor::ranks), text(Factor::batch_per_rank), text(Factor::precision),
                     text(Factor::strategy), text(Factor::algorithm), text(Factor::codec));
}

/// The line that compares the hidden time with the time that a cut into buckets could hide; empty where the link's rate
/// is unknown.
std::string hidden_line(const core::Point& p) {
  using core::Metric;
  const double exchange = p.metrics.number(Metric::limit_exchange_s), least = p.metrics.number(Metric::exposed_least_s);
  if (!(exchange > 0) || !(least >= 0)) return "";
  const double hideable = exchange - least, hidden = exchange - p.metrics.number(Metric::exposed_union_s);
  const double slowed = p.metrics.number(Metric::interference_s);
  return fmt::format(
      "hidden: {} of the {} ms that can be hidden of {} ms on the link ({}); kernels took {} ms longer beside it\n",
      ms(hidden), ms(hideable), ms(exchange), hideable > 0 ? fmt::format("{:.0f} %", 100 * hidden / hideable) : "-",
      std::isfinite(slowed) ? ms(slowed) : "-");
}

}  // namespace

std::string bucket_table(const core::Point& p, std::span<const BucketTimes> buckets, std::size_t width) {
  using enum core::Align;
  if (buckets.empty())
    return head(p) + "no times by bucket: this strategy or codec does not send each bucket in a call of its own\n\n";
  core::Table table({{"bucket", "", right},
                     {"tensors", "", right, 1},
                     {"largest", "", left},
                     {"share", "%", right, 2},
                     {"MiB", "", right},
                     {"ready", "ms", right, 3},
                     {"begin", "ms", right, 3},
                     {"end", "ms", right, 3},
                     {"wire", "ms", right},
                     {"exposed", "ms", right},
                     {"95 %", "ms", left}});
  double exposed = 0;
  for (std::size_t i = 0; i < buckets.size(); ++i) {
    const BucketTimes& b = buckets[i];
    exposed += b.exposed.value;
    table.add_row({fmt::format("{}", i + 1), fmt::format("{}", b.tensors), b.largest,
                   fmt::format("{:.0f}", 100 * b.largest_share),
                   fmt::format("{:.3g}", static_cast<double>(b.bytes) / (1 << 20)), ms(b.ready.value),
                   ms(b.begin.value), ms(b.end.value), b.wire ? ms(b.wire->value) : "-", ms(b.exposed.value),
                   b.exposed.ci95 ? fmt::format("{} to {}", ms(b.exposed.ci95->low), ms(b.exposed.ci95->high)) : "-"});
  }
  return fmt::format(
      "{}{}\nexposed: {} ms in all buckets, {} ms in the row; when several are exposed at once, the first counts\n{}\n",
      head(p), table.to_string(width), ms(exposed), ms(p.metrics.number(core::Metric::exposed_union_s)),
      hidden_line(p));
}

std::string rank_table(const core::Point& p, std::span<const RankTimes> ranks, std::size_t width) {
  using core::Factor;
  using enum core::Align;
  core::Table table({{"rank", "", right},
                     {"host", "", left},
                     {"compute", "ms", right},
                     {"independent", "ms", right},
                     {"waits", "ms", right}});
  const auto ms = [](double seconds) { return fmt::format("{:.3g}", 1e3 * seconds); };
  for (const auto& r : ranks) {
    table.add_row({fmt::format("{}", r.rank), r.host, ms(r.compute), r.control_compute ? ms(*r.control_compute) : "-",
                   ms(r.wait)});
  }
  const auto& algorithm = p.factors[Factor::algorithm];
  return fmt::format("{} · batch {} · {}{}\n{}\n", report::counted(report::integer(p.factors[Factor::ranks]), "rank"),
                     core::to_text(p.factors[Factor::batch_per_rank]), core::to_text(p.factors[Factor::strategy]),
                     core::is_null(algorithm) ? "" : " · " + core::to_text(algorithm), table.to_string(width));
}

}  // namespace gradmeter::bench
