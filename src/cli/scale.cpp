// gradmeter scale: the main experiment.
#include <algorithm>
#include <cstdio>
#include <map>
#include <set>

#include "bench/scale/scale.hpp"
#include "cli/agree.hpp"
#include "cli/bucket_table.hpp"
#include "cli/closing.hpp"
#include "cli/command.hpp"
#include "cli/data.hpp"
#include "cli/devices.hpp"
#include "cli/flags/flags.hpp"
#include "cli/flags/training_flags.hpp"
#include "cli/output.hpp"
#include "cli/rank_table.hpp"
#include "cli/terminal.hpp"
#include "compression/warm_up.hpp"
#include "core/format.hpp"
#include "core/print.hpp"
#include "core/table.hpp"
#include "dataparallel/optimizers/registry.hpp"
#include "report/tables.hpp"
#include "runtime/host/host.hpp"
#include "runtime/host/launcher.hpp"
#include "runtime/process/progress.hpp"

namespace gradmeter::cli {
namespace {

using core::UsageError;

options::options_description curve_flags() {
  options::options_description d("Flags (a comma list makes a factor; all gives every value there is)");
  d.add_options()("help,h", "this text");
  add_training_flags(d, Values::list);
  add_text(d, "ranks", "", "rank counts; default 1,2,4 … up to the world");
  add_text(d, "placement", "packed",
           "which of the ranks: packed (fill a node before the next), spread (one of each in turn)");
  add_text(d, "scaling", "weak", "weak, strong");
  add_text(d, "cadence", "barrier", "between iterations: barrier, none, window");
  add_text(d, "interconnect", "", "a label for what joins the ranks, kept with every point");
  add_text(d, "optimizer", "sgd", "sgd, momentum:mu=0.9, adamw, lars …; see list optimizers");
  add_text(d, "time-budget", "", "for all points together: 90s, 10m, 2h; default 5 s a point");
  add_text(d, "min-samples", "10", "iterations a point at least");
  add_text(d, "precision-goal", "0.025", "half width of the median's 95 % interval, relative, at which a point stops");
  add_text(d, "learn", "", "samples to train each point on, anew: its accuracy after them, and in equal time");
  add_text(d, "lr-rule", "",
           "of --learn: constant, linear:batch=64, sqrt:batch=64; default linear, with Adam's family sqrt");
  add_text(d, "warmup", "0.1", "of --learn: epochs over which the step size grows from the usual one; 0: none");
  add_injection(d);
  add_rank_flags(d);
  add_switch(d, "per-bucket",
             "also each bucket of the gradients: when it was ready, under way, and what of it was exposed");
  add_switch(d, "per-rank", "also each rank's kernels and waits: who is slow, and who waits for it");
  add_switch(d, "dry-run", "say which points, how long, how much memory; measure nothing");
  add_wide_flag(d);
  add_output_flags(d);
  return d;
}

std::vector<int> default_ranks(int world) {
  std::vector<int> out;
  for (int r = 1; r < world; r *= 2) out.push_back(r);
  out.push_back(world);
  return out;
}

std::vector<bench::Scaling> parse_scalings(const std::string& text) {
  std::vector<bench::Scaling> out;
  for (const auto& item : split_list("--scaling", text)) {
    if (item == "weak" || item == "all") out.push_back(bench::Scaling::weak);
    if (item == "strong" || item == "all") out.push_back(bench::Scaling::strong);
    if (item != "weak" && item != "strong" && item != "all") {
      throw UsageError(fmt::format("scaling '{}' is not known; there are: strong, weak", item));
    }
  }
  return out;
}

std::vector<int> parse_ranks(const Flags& f, int world) {
  if (!f.has("ranks")) return default_ranks(world);
  auto ranks = to_ints(parse_counts("--ranks", f.text("ranks"), 1, 1u << 20));
  for (int r : ranks) {
    if (r > world) {
      throw UsageError(fmt::format("--ranks {}: the world has {}; start it with mpirun -np {}", r, world, r));
    }
  }
  return ranks;
}

/// Everything that the flags alone decide; the same on every rank.
bench::ScaleOptions read_options(const Flags& f, int world, int default_threads, const DataShape& data,
                                 const bench::NodeMap& map, int cores_per_node) {
  bench::ScaleOptions o;
  o.factors = read_training_flags(f, data, default_threads);
  refuse_emulated(f, o.factors.models, data);
  o.factors.codecs = compression::as_timed(std::move(o.factors.codecs));
  o.factors.ranks = parse_ranks(f, world);
  const auto placements = bench::placements();
  o.factors.placements = choose("--placement", "placement", f.text("placement"),
                                std::vector<bench::Placement>(placements.begin(), placements.end()),
                                [](auto p) { return std::string(bench::name(p)); });
  o.factors.map = map;
  o.factors.cores_per_node = cores_per_node;
  o.factors.scalings = parse_scalings(f.text("scaling"));
  o.factors.cadences = parse_cadences(f.text("cadence"));
  if (f.has("interconnect")) o.factors.interconnect = read_label(f, "interconnect");
  dataparallel::make_optimizer(f.text("optimizer"), {.elements = 1});
  o.factors.common.optimizer = f.text("optimizer");
  o.factors.common.device = f.text("device");
  o.factors.common.injection = read_injection(f, world);
  o.data_directory = data_directory(f);
  if (f.has("learn")) {
    o.learn_samples = parse_count("--learn", f.text("learn"), 1, std::uint64_t{1} << 40);
    require_learning("--learn", f, o.factors.models, data);
    o.learning_rule.warmup_epochs = parse_number("--warmup", f.text("warmup"), 0, 1e6);
    if (f.has("lr-rule")) o.learning_rule.step_rule = bench::StepSizeRule(f.text("lr-rule"));
    if (o.learning_rule.step_rule && o.learning_rule.step_rule->name().find("cosine") != std::string::npos) {
      throw UsageError(
          "--lr-rule cosine ends with the run, and --learn takes the accuracy at two times; take linear, sqrt or "
          "constant");
    }
  } else if (f.has("lr-rule")) {
    throw UsageError("--lr-rule is of --learn, since a timed step is the same with every size; add --learn SAMPLES");
  }
  if (f.has("time-budget")) o.time_budget = parse_time("--time-budget", f.text("time-budget"));
  o.rule.min_samples = parse_count("--min-samples", f.text("min-samples"), 3, 1'000'000);
  o.rule.relative_half_width = parse_number("--precision-goal", f.text("precision-goal"), 1e-4, 1);
  for (const auto& p : bench::plan_scale(o.factors))
    if (p.impossible.empty()) check_enough(data, o.data_directory, p.batch_global);
  return o;
}

std::string unused_note(const Flags& f, const bench::ScaleFactors& factors) {
  bench::Applies used;
  // A row that says why it cannot be measured is a valid result too.
  for (const auto& p : bench::plan_scale(factors))
    used |= p.impossible.empty() ? p.applies : bench::factors_of(*p.strategy);
  return unused_note("scale", f, used, *std::ranges::max_element(factors.ranks));
}

std::string point_text(const bench::ScalePoint& p) {
  return fmt::format("{}{}{}", p.strategy->name, p.algorithm ? fmt::format(" {}", p.algorithm->name) : "",
                     p.codec ? fmt::format(" {}", p.codec->label) : "");
}

/// Without a launcher a plan may be for more ranks than there are: as many as the largest that was asked for.
int planned_world(const Flags& f, const runtime::Launcher& launcher) {
  if (!launcher.name.empty() || !f.has("ranks")) return launcher.size;
  auto ranks = to_ints(parse_counts("--ranks", f.text("ranks"), 1, 1u << 20));
  return *std::max_element(ranks.begin(), ranks.end());
}

int print_curve_plan(const Flags& f) {
  const auto launcher = planned_launcher(f);
  if (launcher.rank != 0) return 0;
  const auto host = runtime::read_host();
  const int cores = static_cast<int>(std::max<std::size_t>(1, host.available_units));
  const int world = planned_world(f, launcher);
  const auto options =
      read_options(f, world, std::max(1, cores / world), read_data_shape(data_directory(f)), {}, cores);
  if (const auto note = unused_note(f, options.factors); !note.empty()) core::print(stderr, "{}\n", note);
  read_output_flags(f);
  core::Table table({{"ranks", "", core::Align::right},
                     {"scaling", "", core::Align::left},
                     {"batch", "/rank", core::Align::right},
                     {"model", "", core::Align::left},
                     {"point", "", core::Align::left},
                     {"memory", "/rank", core::Align::right},
                     {"at most", "s", core::Align::right}});
  double seconds = 0;
  std::map<std::size_t, std::size_t> at_once;  // by curve: its points are measured in turn and live side by side
  for (const auto& e : bench::estimate_scale(options)) {
    const auto& p = e.point;
    table.add_row({fmt::format("{}", p.ranks), p.scaling ? std::string(bench::name(*p.scaling)) : "-",
                   fmt::format("{}", p.batch_per_rank), p.model, point_text(p),
                   core::to_text(core::Bytes{e.bytes_per_rank}), fmt::format("{:.1f}", e.seconds_at_most)},
                  p.impossible.empty() ? "" : "skipped: " + p.impossible);
    seconds += e.seconds_at_most;
    at_once[p.curve] += e.bytes_per_rank * static_cast<std::size_t>(p.ranks);
  }
  std::size_t most = 0;
  for (const auto& [curve, bytes] : at_once) most = std::max(most, bytes);
  core::print("{}\n{} points, at most {} in all; up to {} of memory at once over all ranks ({} free here)\n",
              table.to_string(table_width(f)), table.rows(), core::to_text(core::Seconds{seconds}),
              core::to_text(core::Bytes{most}), core::to_text(core::Bytes{host.available_memory_bytes}));
  return 0;
}

/// What the columns mean, and on which machine: a table cannot be read without both.
void print_curve_head(const bench::Session& s, const core::Injection& injection) {
  const auto& i = s.run_info();
  core::print("gradmeter {} ({})  {} ranks on {} node{}, {} cores a node  {}  {}\n{}\n", i.version, i.commit, i.ranks,
              i.nodes, i.nodes == 1 ? "" : "s", i.cores_per_node, i.cpu, i.mpi, injection_line(injection));
  std::fflush(stdout);
}

/// Where automatic overlap is off, and why.
void print_overlap(const bench::ScaleFactors& f) {
  using enum bench::Overlap;
  const auto asked = [&f](bench::Overlap o) {
    return std::find(f.overlaps.begin(), f.overlaps.end(), o) != f.overlaps.end();
  };
  if (!asked(automatic) || asked(none)) return;
  std::set<int> off;
  for (const auto& p : bench::plan_scale(f)) {
    if (p.applies.overlap && p.overlap == none) off.insert(p.ranks);
  }
  if (off.empty()) return;
  core::print("no spare core with {} ranks: overlap off (--overlap bucketed turns it on)\n\n", fmt::join(off, ", "));
}

struct Collected {
  std::vector<core::Point> points;
  PointCounts counts = {};
  std::string ranks = {};    ///< what each rank did, as text
  std::string buckets = {};  ///< when each bucket was exchanged, as text
};

bench::ScaleListener listen(Collected& got, core::ResultWriter* writer, runtime::Progress& progress, bool per_bucket) {
  bench::ScaleListener listener{
      .rows = {.planned =
                   [writer](std::size_t points, std::size_t kept) {
                     if (writer) writer->append(core::make_plan(points, kept));
                   },
               .measured =
                   [&got, writer, &progress](const core::Point& p) {
                     if (writer) writer->append(p);
                     got.points.push_back(p);
                     got.counts.add(p);
                     progress.update(got.points.size(), "");
                   },
               .kept =
                   [&got](const core::Point& p) {
                     got.points.push_back(p);
                     got.counts.keep();
                   },
               .progress = [&got, &progress](const std::string& now) { progress.update(got.points.size(), now); }},
      .ranks = [&got](const core::Point& p,
                      std::span<const bench::RankTimes> ranks) { got.ranks += rank_table(p, ranks); },
      .buckets = {}};
  if (per_bucket)
    listener.buckets = [&got](const core::Point& p, std::span<const bench::BucketTimes> buckets) {
      got.buckets += bucket_table(p, buckets);
    };
  return listener;
}

int measure_curve(const Flags& f, const Invocation& invocation) {
  bench::Session session(*invocation.world, invocation.process, parse_time("--timeout", f.text("timeout")),
                         invocation.command_line);
  const auto& world = session.world();
  check_only("--device", f.text("device"), device_names);
  const OpenedDevice device = open_device(f.text("device"), world);
  session.compute_on(device.device, device.note, device.gauge);
  if (session.is_root() && !device.note.empty()) core::print(stderr, "{}\n", device.note);
  const int threads = std::max(1, session.cores_per_node() / session.ranks_per_node(world.size()));
  const auto options = read_options(f, world.size(), threads, agree_on_data(world, data_directory(f)), session.map(),
                                    session.cores_per_node());
  if (const auto note = unused_note(f, options.factors); session.is_root() && !note.empty())
    core::print(stderr, "{}\n", note);
  const OutputFlags output = read_output_flags(f);
  Earlier earlier;
  agree(world, [&] { earlier = check_output(output, session.run_info(), "scale"); });
  const bool root = session.is_root();
  auto finished = share_finished(world, std::move(earlier.finished));
  core::ResultWriter* writer = nullptr;
  agree(world, [&] { writer = invocation.output->open(output, session.run_info()); });
  if (root && !earlier.note.empty()) core::print(stderr, "{}\n", earlier.note);
  if (root) print_curve_head(session, options.factors.common.injection);
  if (root) print_overlap(options.factors);
  start_drift(options.factors.common.injection, world);

  Collected got;
  const std::size_t width = table_width(f);
  const std::size_t total = bench::plan_scale(options.factors).size();
  runtime::Progress progress("points", total, root);
  try {
    bench::ScaleListener listener = listen(got, writer, progress, f.on("per-bucket"));
    listener.rows = checking(std::move(listener.rows), session.device(), session.device_note());
    const std::size_t wrong = bench::run_scale(session, options, finished, listener);
    progress.finish();
    if (root) core::print("{}{}", report::scale_tables(got.points, width), report::scale_legend(got.points));
    if (root && f.on("per-rank")) core::print("\n{}", got.ranks);
    if (root && f.on("per-bucket")) core::print("\n{}", got.buckets);
    if (root) core::print("{}", closing(got.points, invocation, output.path));
    if (root && writer) core::print("\n{}; {}\n", got.counts.text(), writer->path().string());
    return static_cast<int>(wrong ? core::ExitCode::wrong_result : core::ExitCode::done);
  } catch (const core::Interrupted&) {
    progress.finish();
    if (root) core::print("{}", report::scale_tables(got.points, width));
    if (root) {
      core::print(stderr, "gradmeter: interrupted after {} of {} points{}\n", got.points.size(), total,
                  writer ? fmt::format("; they are in {}: go on with --resume", writer->path().string()) : "");
    }
    throw;
  }
}

}  // namespace

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

}  // namespace gradmeter::cli
