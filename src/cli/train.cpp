// gradmeter train: one configuration to convergence.
#include <cmath>
#include <cstdio>

#include "bench/train/strategy_row.hpp"
#include "bench/train/timeline.hpp"
#include "bench/train/train.hpp"
#include "cli/agree.hpp"
#include "cli/closing.hpp"
#include "cli/command.hpp"
#include "cli/data.hpp"
#include "cli/devices.hpp"
#include "cli/flags/flags.hpp"
#include "cli/flags/training_flags.hpp"
#include "cli/output.hpp"
#include "compression/gradient_file.hpp"
#include "compression/momentum_correction.hpp"
#include "compression/warm_up.hpp"
#include "core/format.hpp"
#include "core/print.hpp"
#include "dataparallel/optimizers/registry.hpp"
#include "dataparallel/server/protocol.hpp"
#include "kernels/library.hpp"
#include "report/tables.hpp"
#include "runtime/host/host.hpp"
#include "runtime/process/progress.hpp"

namespace gradmeter::cli {
namespace {

options::options_description train_flags() {
  options::options_description d("Flags");
  d.add_options()("help,h", "this text");
  add_training_flags(d, Values::one);
  add_text(d, "epochs", "20", "at most");
  add_text(d, "steps", "", "at most");
  add_text(d, "target", "", "stop at this validation accuracy: 0.97");
  add_text(d, "lr", "", "step size; default: the strategy's usual one");
  add_text(d, "lr-rule", "constant", "constant, cosine, and with '+' linear:batch=64, sqrt:batch=64: linear+cosine");
  add_text(d, "warmup", "1", "epochs over which the step size grows linearly from 0, or from --lr if scaled; 0: none");
  add_text(d, "optimizer", "", "sgd, momentum:mu=0.9, adamw, lars …; default: the strategy's usual one, sgd with dgc");
  add_text(d, "train-samples", "60000", "of the built-in digits, or the first of the files");
  add_text(d, "validation-samples", "10000", "likewise");
  add_text(d, "log-every", "", "a loss row every so many steps, besides one an epoch");
  add_text(d, "trace", "", "write what every rank did to this file, for Perfetto (ui.perfetto.dev)");
  add_text(d, "trace-steps", "", "which steps, FIRST:COUNT; default 5:20, from 0 in a shorter run");
  add_text(d, "noise-scale", "", "look at the gradient's noise every so many steps, on two or more ranks");
  add_text(d, "dump-gradients", "", "write rank 0's gradient of one step, before its exchange, for gradmeter codecs");
  add_text(d, "dump-weights", "", "write rank 0's weights before one step, by default before the first");
  add_text(d, "dump-step", "", "which, from 0; of gradients by default 100, or the last of a shorter run");
  add_injection(d);
  add_rank_flags(d);
  add_output_flags(d);
  return d;
}

template <class T>
T only_one(const std::string& flag, const std::vector<T>& values) {
  if (values.size() != 1) throw core::UsageError(fmt::format("train: {} takes one value; scale takes lists", flag));
  return values.front();
}

bench::TraceRequest read_trace(const Flags& f) {
  if (!f.has("trace")) throw core::UsageError("--trace-steps needs --trace FILE");
  bench::TraceRequest t{.path = f.text("trace"), .first = {}, .replace = f.on("force")};
  if (!f.has("trace-steps")) return t;
  const std::string text = f.text("trace-steps");
  const std::size_t colon = text.find(':');
  if (colon == std::string::npos) throw core::UsageError("--trace-steps takes FIRST:COUNT, such as 5:20");
  t.first = parse_count("--trace-steps", text.substr(0, colon), 0, 1u << 30);
  t.count = parse_count("--trace-steps", text.substr(colon + 1), 1, 10000);
  return t;
}

std::optional<bench::Dump> read_dump(const Flags& f, const std::string& flag) {
  if (!f.has(flag)) return std::nullopt;
  bench::Dump d{.path = f.text(flag), .step = {}, .replace = f.on("force")};
  if (f.has("dump-step")) d.step = parse_count("--dump-step", f.text("dump-step"), 0, 1u << 30);
  return d;
}

/// `at`: with the threads that a rank has unless the flags say.
bench::TrainOptions read_options(const Flags& f, int ranks, bench::Occupancy at, const DataShape& data) {
  bench::TrainOptions o;
  auto& c = o.config;
  const bench::ScaleFactors lists = read_training_flags(f, data, at.threads);
  c = lists.common;
  c.threads = at.threads = only_one("--threads", lists.threads);
  c.device = f.text("device");
  c.model = only_one("--model", lists.models);
  require_learning("train", f, lists.models, data);
  c.batch_per_rank = only_one("--batch", lists.batches);
  if (f.has("servers")) only_one("--servers", split_list("--servers", f.text("servers")));  // each makes a strategy
  c.strategy = only_one("--strategy", lists.strategies);
  c.mesh = only_one("--mesh", lists.meshes);
  for (const auto& factor : lists.settings) only_one(factor.flag, factor.values)(c);
  c.algorithm = only_one("--algorithm", lists.algorithms);
  c.codec = c.gradient_codec(only_one("--codec", lists.codecs));
  c.transport = only_one("--transport", lists.transports);
  c.overlap = bench::resolve(only_one("--overlap", lists.overlaps), c.strategy->info().communication, at);
  c.bucket_bytes = only_one("--bucket", lists.buckets);
  const auto& usual = c.strategy->info();
  const bool plain = usual.optimizer.empty() || (c.codec && compression::momentum_of(*c.codec) > 0);
  c.optimizer = f.has("optimizer") ? f.text("optimizer") : std::string(plain ? "sgd" : usual.optimizer);
  dataparallel::make_optimizer(c.optimizer_name(), {.elements = 1});
  c.injection = read_injection(f, ranks);
  c.step_size = f.has("lr") ? static_cast<float>(parse_number("--lr", f.text("lr"), 1e-9, 1e3)) : usual.step_size;
  o.epochs = parse_count("--epochs", f.text("epochs"), 1, 1u << 20);
  o.step_rule = bench::StepSizeRule(f.text("lr-rule"));
  o.warmup_epochs = parse_number("--warmup", f.text("warmup"), 0, 1e6);
  if (f.has("steps")) o.max_steps = parse_count("--steps", f.text("steps"), 1, 1u << 30);
  if (f.has("target")) o.target = parse_number("--target", f.text("target"), 0, 1);
  o.dump_gradients = read_dump(f, "dump-gradients");
  o.dump_weights = read_dump(f, "dump-weights");
  if (f.has("dump-step") && !o.dump_gradients && !o.dump_weights) {
    throw core::UsageError("--dump-step needs --dump-gradients FILE or --dump-weights FILE");
  }
  if (o.dump_gradients && o.dump_weights && o.dump_gradients->path == o.dump_weights->path) {
    throw core::UsageError("--dump-gradients and --dump-weights name the same file; give two");
  }
  if (f.has("log-every")) o.log_every = parse_count("--log-every", f.text("log-every"), 1, 1u << 30);
  if (f.has("trace") || f.has("trace-steps")) o.trace = read_trace(f);
  if (f.has("noise-scale")) o.noise_every = parse_count("--noise-scale", f.text("noise-scale"), 1, 1u << 30);
  o.data.source = data_directory(f);
  o.data.train_samples = parse_count("--train-samples", f.text("train-samples"), 1, 1u << 30);
  o.data.validation_samples = parse_count("--validation-samples", f.text("validation-samples"), 1, 1u << 30);
  o.data.seed = c.seed;
  return o;
}

std::string step_text(const bench::TrainOptions& o, std::size_t batch) {
  const auto size = o.step_rule.scaled(static_cast<double>(o.config.step_size), batch);
  if (o.step_rule.name() == "constant") return fmt::format("{}", o.config.step_size);
  return fmt::format("{} ({} at batch {})", static_cast<float>(size), o.step_rule.name(), batch);
}

/// Transport, algorithm and codec, as far as they apply to the strategy.
std::string exchange_text(const bench::TrainingConfig& c, const bench::Layout& l) {
  const auto applies = bench::factors_of(c, l);
  std::string codec = applies.codec && c.codec ? " " + c.codec->label : "";
  const bool dense_weights = c.strategy->info().communication == dataparallel::CommunicationPattern::client_server &&
                             !codec.empty() && !dataparallel::Coding::why_dense_weights(*c.codec).empty();
  return fmt::format("{}{}{}", applies.algorithm ? " " + c.algorithm->name : "", codec,
                     dense_weights ? " (weights dense)" : "");
}

/// no_core: why automatic overlap is off.
/// rounded: by software.
void print_training_head(const bench::Session& s, const bench::TrainOptions& o, const bench::Layout& l, bool no_core,
                         bool rounded) {
  const auto& c = o.config;
  const bool plain = l.workers == s.world().size();
  const std::string who = plain ? fmt::format("{} rank{}", l.workers, l.workers == 1 ? "" : "s")
                                : fmt::format("{} ranks, mesh {}, {} worker{}", s.world().size(), l.mesh.text(),
                                              l.workers, l.workers == 1 ? "" : "s");
  const std::string how = rounded ? "emulated" : kernels::how_multiplied(c.precision);
  const std::string precision =
      c.precision == kernels::Precision::fp32
          ? ""
          : fmt::format("  {}{}", kernels::name(c.precision), how.empty() ? "" : " (" + how + ")");
  const std::string scale = c.loss_scale.used() ? "  loss scale " + c.loss_scale.text() : "";
  core::print("gradmeter {} ({})  train {}{}{}  {} × batch {}{}  {}{}  {}  step size {}\n{}{}\n{}",
              s.run_info().version, s.run_info().commit, c.model, precision, scale, who, c.batch_per_rank,
              c.accumulate > 1 ? fmt::format(" in {} micro-batches", c.accumulate) : "", c.strategy->name,
              exchange_text(c, l), c.optimizer_name(), step_text(o, l.batch_global(c)),
              no_core ? "no spare core: overlap off (--overlap bucketed turns it on)\n" : "",
              injection_line(c.injection), report::train_header());
  std::fflush(stdout);
}

/// The roles of these ranks. Errors: UsageError with the reason why they cannot train so.
bench::Layout agreed_layout(const bench::Session& s, const bench::TrainOptions& o, const DataShape& data) {
  const auto& world = s.world();
  const bench::DataFacts facts{data.features, data.classes, data.labels};
  if (const auto why = bench::refusal(o.config, facts, s.map()); !why.empty()) throw core::UsageError(why);
  if (const auto shm = bench::shm_bytes(o.config, facts, s.map()); shm > s.shm_per_node())
    throw core::Unavailable("train: " + runtime::short_of_shm(shm, s.shm_per_node()));
  return bench::layout_of(o.config, world.size(), world.rank());
}

/// Epochs are known here, and with them the usual length of a warm-up. Servers have none.
compression::CodecChoicePtr warming_up(const bench::TrainingConfig& c, std::size_t steps_per_epoch) {
  if (c.strategy->info().communication == dataparallel::CommunicationPattern::client_server) return c.codec;
  return compression::with_warm_up(c.codec, compression::warm_up_epochs * steps_per_epoch);
}

/// has_times: they mean something.
void print_end(const bench::TrainOptions& o, const bench::TrainResult& r, bool has_times) {
  const std::string time = !has_times ? "" : fmt::format(", {:.2f} s of training", r.seconds);
  if (o.target) {
    core::print("\n{} {:.2f} % after {} steps{}\n", r.reached ? "reached" : "not reached: ended at", 100 * r.accuracy,
                r.steps, time);
  } else {
    core::print("\n{:.2f} % after {} steps{}\n", 100 * r.accuracy, r.steps, time);
  }
}

/// Of sentences: how many words the model chooses among, on average.
void print_perplexity(const bench::TrainResult& r) {
  if (!r.is_text) return;
  core::print(
      "validation perplexity {:.3f} ({:.4f} nats a word){}\n", std::exp(r.validation_loss), r.validation_loss,
      r.least_loss > 0 ? fmt::format("; no model is below {:.3f} ({:.4f})", std::exp(r.least_loss), r.least_loss) : "");
}

/// What all ranks sent, and what servers counted.
void print_exchange(const bench::TrainingTotals& t) {
  if (t.bytes_known && t.bytes_sent > 0) {
    const std::string most = core::to_text(core::Bytes{t.forecast.bytes / t.steps});
    core::print("{} sent a step by all ranks{}\n", core::to_text(core::Bytes{t.bytes_sent / t.steps}),
                t.forecast.known  ? ", as forecast"
                : t.forecast.most ? fmt::format(", of {} at most by the forecast", most)
                                  : "");
  }
  if (t.loss_scale)
    core::print("loss scale {:g} at the end; {} steps skipped\n", t.loss_scale->scale, t.loss_scale->skipped);
  if (t.observed.updates == 0) return;
  const auto s = bench::summarise_staleness(t.observed.staleness);
  core::print("{} updates by workers; staleness {:.2f} on average, {} at the 99th percentile, {} at most\n",
              t.observed.updates, t.observed.mean_staleness(), s.p99, s.max);
}

void print_noise(const bench::TrainResult& r) {
  if (r.noise_scale) {
    core::print("gradient noise scale {:.0f} samples: a global batch beyond it saves few steps\n", *r.noise_scale);
  } else {
    core::print("gradient noise scale not known: the noise hides the gradient; look at more steps\n");
  }
}

/// Files that were asked for and are not there.
void print_unwritten(const bench::TrainOptions& o, const bench::TrainResult& r) {
  const auto note = [](std::string_view what, std::string_view whose) {
    core::print(stderr, "gradmeter: no {} written: the target was reached before {} step\n", what, whose);
  };
  if (o.trace && !r.traced) note("trace was", "its first");
  if (o.dump_gradients && !r.gradients_dumped) note("gradient was", "its");
  if (o.dump_weights && !r.weights_dumped) note("weights were", "their");
}

int run_training(const Flags& f, const Invocation& invocation) {
  bench::Session session(*invocation.world, invocation.process, parse_time("--timeout", f.text("timeout")),
                         invocation.command_line);
  const auto& world = session.world();
  bench::Occupancy at{.ranks_per_node = session.ranks_per_node(world.size()),
                      .cores_per_node = session.cores_per_node(),
                      .ranks = world.size()};
  at.threads = std::max(1, at.cores_per_node / at.ranks_per_node);
  check_only("--device", f.text("device"), device_names);
  const OpenedDevice device = open_device(f.text("device"), world);
  session.compute_on(device.device, device.note, device.gauge);
  if (session.is_root() && !device.note.empty()) core::print(stderr, "{}\n", device.note);
  const DataShape data = agree_on_data(world, data_directory(f));
  auto options = read_options(f, world.size(), at, data);
  bench::check_noise_scale(options, world.size());
  const std::size_t samples = std::min(data.train_samples, options.data.train_samples);
  const OutputFlags output = read_output_flags(f);
  if (output.resume) throw core::UsageError("train: a training run cannot be resumed; use --append or --force");
  const bool root = session.is_root();
  const bench::Layout layout = agreed_layout(session, options, data);
  if (const auto note = unused_note("train", f, bench::factors_of(options.config, layout), world.size());
      root && !note.empty())
    core::print(stderr, "{}\n", note);
  core::ResultWriter* writer = nullptr;
  agree(world, [&] {
    check_output(output, session.run_info(), "train");
    model::Sampler(samples, layout.batch_global(options.config), 1);
    if (options.trace) bench::check_trace_path(options.trace->path, options.trace->replace);
    for (const auto& dump : {options.dump_gradients, options.dump_weights})
      if (dump) compression::check_gradient_path(dump->path, dump->replace);
    writer = invocation.output->open(output, session.run_info());
  });
  options.config.codec =
      warming_up(options.config, model::Sampler(samples, layout.batch_global(options.config), 1).steps_per_epoch());
  const bool off = f.text("overlap") == "auto" && options.config.overlap == bench::Overlap::none;
  const bool rounded = bench::is_rounded_by_software(options.config, {data.features, data.classes, data.labels});
  if (root) print_training_head(session, options, layout, off && bench::exchanges(options.config, layout), rounded);
  start_drift(options.config.injection, world);
  runtime::Progress progress("steps", 1, root);
  std::vector<core::Point> measured;
  bench::TrainListener listener{.planned =
                                    [&](std::size_t rows) {
                                      if (writer) writer->append(core::make_plan(rows, 0));
                                    },
                                .row =
                                    [&](const core::Point& p) {
                                      if (writer) writer->append(p);
                                      if (root) measured.push_back(p);
                                      if (core::is_null(p.metrics[core::Metric::accuracy])) return;
                                      progress.clear();
                                      core::print("{}", report::train_row(p));
                                      std::fflush(stdout);
                                    },
                                .progress = {}};
  const auto result = bench::run_train(session, options, listener);
  progress.finish();
  if (root) print_end(options, result, result.has_times);
  if (root) print_perplexity(result);
  if (root) print_exchange(result.totals);
  if (root && options.noise_every) print_noise(result);
  if (root) print_unwritten(options, result);
  if (!result.weights_equal) throw core::WrongResult("ranks hold different weights after synchronous training");
  if (!result.totals.right()) throw core::WrongResult(result.totals.fault());
  if (root) core::print("{}", closing(measured, invocation, output.path));
  const bool below = options.target && !result.reached;
  return static_cast<int>(below ? core::ExitCode::below_bar : core::ExitCode::done);
}

}  // namespace

Usage train_usage() {
  return {.flags = train_flags(),
          .about =
              "gradmeter train: one configuration to convergence\n"
              "\n"
              "mpirun -np 4 gradmeter train --model mlp --batch 32 --target 0.97"};
}

int run_train_command(const Flags& flags, const Invocation& invocation) { return run_training(flags, invocation); }

}  // namespace gradmeter::cli
