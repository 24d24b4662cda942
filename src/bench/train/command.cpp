// SPDX-License-Identifier: Apache-2.0
// gradmeter train: trains one configuration, and shows what it learns in which time.
#include <cmath>
#include <cstdio>

#include "bench/engine/command.hpp"
#include "bench/engine/devices.hpp"
#include "bench/engine/flags.hpp"
#include "bench/engine/measuring.hpp"
#include "bench/engine/output.hpp"
#include "bench/train/flags.hpp"
#include "bench/train/memory.hpp"
#include "bench/train/metrics.hpp"
#include "bench/train/trace.hpp"
#include "bench/train/train.hpp"
#include "compression/codecs/dgc.hpp"
#include "compression/test_gradients.hpp"
#include "core/format.hpp"
#include "core/print.hpp"
#include "dataparallel/optimizers/optimizer.hpp"
#include "dataparallel/server/protocol.hpp"
#include "kernels/host/library.hpp"
#include "runtime/host/host.hpp"
#include "runtime/process/progress.hpp"

namespace gradmeter::bench {
namespace {

FlagList train_flags() {
  FlagList flags("Flags");
  add_switch(flags, "help,h", "this text");
  add_training_flags(flags, Values::one);
  add_text(flags, "epochs", "20", "maximum number of epochs");
  add_text(flags, "steps", "", "maximum number of steps");
  add_text(flags, "target", "", "stop at this validation accuracy: 0.97");
  add_text(flags, "lr", "", "step size; default: the strategy's usual one");
  add_text(flags, "lr-rule", "constant",
           "how --lr depends on global batch and step: constant, linear:batch=64, sqrt:batch=64, cosine; linear+cosine "
           "is both");
  add_text(flags, "warmup", "1",
           "epochs in which the step size grows from 0, or where --lr-rule scales it, from --lr to the scaled one; 0: "
           "no warm-up");
  add_text(flags, "optimizer", "",
           "sgd, momentum:mu=0.9, adamw, lars …; default: the strategy's usual one; with --codec dgc, sgd");
  add_text(flags, "train-samples", "60000", "training samples: built-in digits, or the first ones of the files");
  add_text(flags, "validation-samples", "10000", "validation samples, chosen in the same way");
  add_text(flags, "log-every", "", "show the loss every so many steps, beside the row of each epoch");
  add_text(flags, "trace", "", "write what every rank did to this file, for Perfetto (ui.perfetto.dev)");
  add_text(flags, "trace-steps", "",
           "steps in --trace, as FIRST:COUNT; default: 5:20; in a run too short for it, starting at 0");
  add_text(flags, "noise-scale", "", "measure the gradient noise scale every so many steps, on two or more ranks");
  add_text(flags, "dump-gradients", "",
           "write rank 0's gradient of one step, as it is before communication, for gradmeter codecs");
  add_text(flags, "dump-weights", "", "write rank 0's weights as they are before --dump-step");
  add_text(flags, "dump-step", "",
           "the step, counted from 0, of --dump-gradients and --dump-weights; default: for gradients 100 (or the "
           "last), for weights 0");
  add_injection(flags);
  add_rank_flags(flags);
  add_format_flags(flags);
  add_result_file_flags(flags);
  return flags;
}

template <class T>
T only_one(const std::string& flag, const std::vector<T>& values) {
  if (values.size() != 1) throw core::UsageError(fmt::format("train: {} takes one value; scale takes lists", flag));
  return values.front();
}

TraceRequest read_trace(const Flags& flags) {
  if (!flags.has("trace")) throw core::UsageError("--trace-steps needs --trace FILE");
  TraceRequest t{.path = flags.text("trace"), .first = {}, .replace = flags.on("force")};
  if (!flags.has("trace-steps")) return t;
  const std::string text = flags.text("trace-steps");
  const std::size_t colon = text.find(':');
  if (colon == std::string::npos) throw core::UsageError("--trace-steps takes FIRST:COUNT, such as 5:20");
  t.first = parse_count("--trace-steps", text.substr(0, colon), 0, 1u << 30);
  t.count = parse_count("--trace-steps", text.substr(colon + 1), 1, 10000);
  return t;
}

std::optional<Dump> read_dump(const Flags& flags, const std::string& flag) {
  if (!flags.has(flag)) return std::nullopt;
  Dump d{.path = flags.text(flag), .step = {}, .replace = flags.on("force")};
  if (flags.has("dump-step")) d.step = parse_count("--dump-step", flags.text("dump-step"), 0, 1u << 30);
  return d;
}

/// occupancy: its `threads` are those of a rank unless --threads is given.
TrainOptions read_options(const Flags& flags, int ranks, Occupancy occupancy, const TrainingDataFacts& data) {
  TrainOptions options;
  auto& config = options.config;
  const ScaleFactors lists = read_training_flags(flags, data, occupancy.threads);
  config = lists.common;
  config.threads = occupancy.threads = only_one("--threads", lists.threads);
  config.device = flags.text("device");
  config.model = only_one("--model", lists.models);
  require_learning("train", flags, lists.models, data);
  config.batch_per_rank = only_one("--batch", lists.batches);
  if (flags.has("servers"))
    only_one("--servers",
             split_list("--servers", flags.text("servers")));  // each number of servers makes a strategy of its own
  config.strategy = only_one("--strategy", lists.strategies);
  if (ranks == 1 && flags.has("servers") && !flags.on("strict")) config.strategy = config.strategy->with_servers(0);
  config.mesh = only_one("--mesh", lists.meshes);
  for (const auto& factor : lists.settings) only_one(factor.flag, factor.values)(config);
  config.algorithm = only_one("--algorithm", lists.algorithms);
  config.codec = config.gradient_codec(only_one("--codec", lists.codecs));
  config.transport = only_one("--transport", lists.transports);
  config.overlap = resolve(only_one("--overlap", lists.overlaps), config.strategy->info().communication, occupancy);
  const auto& usual = config.strategy->info();
  const bool uses_sgd = usual.optimizer.empty() || (config.codec && compression::momentum_of(*config.codec) > 0);
  config.optimizer = flags.has("optimizer") ? flags.text("optimizer") : std::string(uses_sgd ? "sgd" : usual.optimizer);
  dataparallel::make_optimizer(config.optimizer_name(), {.elements = 1});
  config.injection = read_injection(flags, ranks);
  config.step_size =
      flags.has("lr") ? static_cast<float>(parse_number("--lr", flags.text("lr"), 1e-9, 1e3)) : usual.step_size;
  options.epochs = parse_count("--epochs", flags.text("epochs"), 1, 1u << 20);
  options.step_rule = StepSizeRule(flags.text("lr-rule"));
  options.warmup_epochs = parse_number("--warmup", flags.text("warmup"), 0, 1e6);
  if (flags.has("steps")) options.max_steps = parse_count("--steps", flags.text("steps"), 1, 1u << 30);
  if (flags.has("target")) options.target = parse_number("--target", flags.text("target"), 0, 1);
  options.dump_gradients = read_dump(flags, "dump-gradients");
  options.dump_weights = read_dump(flags, "dump-weights");
  if (flags.has("dump-step") && !options.dump_gradients && !options.dump_weights) {
    throw core::UsageError("--dump-step needs --dump-gradients FILE or --dump-weights FILE");
  }
  if (options.dump_gradients && options.dump_weights && options.dump_gradients->path == options.dump_weights->path) {
    throw core::UsageError("--dump-gradients and --dump-weights name the same file; give two");
  }
  if (flags.has("log-every")) options.log_every = parse_count("--log-every", flags.text("log-every"), 1, 1u << 30);
  if (flags.has("trace") || flags.has("trace-steps")) options.trace = read_trace(flags);
  if (flags.has("noise-scale"))
    options.noise_every = parse_count("--noise-scale", flags.text("noise-scale"), 1, 1u << 30);
  options.data.source = data_directory(flags);
  options.data.train_samples = parse_count("--train-samples", flags.text("train-samples"), 1, 1u << 30);
  options.data.validation_samples = parse_count("--validation-samples", flags.text("validation-samples"), 1, 1u << 30);
  options.data.seed = config.seed;
  return options;
}

std::string step_text(const TrainOptions& options, std::size_t batch) {
  const auto size = options.step_rule.scaled(static_cast<double>(options.config.step_size), batch);
  if (options.step_rule.name() == "constant") return fmt::format("{}", options.config.step_size);
  return fmt::format("{} ({} at batch {})", static_cast<float>(size), options.step_rule.name(), batch);
}

/// Transport, algorithm and codec, as far as they apply to the strategy.
std::string exchange_text(const TrainingConfig& config, const Layout& layout) {
  const auto applies = exchange_factors(config, layout);
  std::string codec = applies.codec && config.codec ? " " + config.codec->label : "";
  const bool dense_weights =
      config.strategy->info().communication == dataparallel::CommunicationPattern::client_server && !codec.empty() &&
      !dataparallel::Coding::why_dense_weights(*config.codec).empty();
  return fmt::format("{}{}{}", applies.algorithm ? " " + config.algorithm->name : "", codec,
                     dense_weights ? " (weights dense)" : "");
}

/// no_core: true if automatic overlap is off, since there is no spare core. rounded: true if software rounds to the
/// precision.
void print_training_head(const Session& s, const TrainOptions& options, const Layout& layout, bool no_core,
                         bool rounded) {
  const auto& config = options.config;
  const bool all_are_workers = layout.workers == s.world().size();
  const std::string who = all_are_workers
                              ? fmt::format("{} rank{}", layout.workers, layout.workers == 1 ? "" : "s")
                              : fmt::format("{} ranks, mesh {}, {} worker{}", s.world().size(), layout.mesh.text(),
                                            layout.workers, layout.workers == 1 ? "" : "s");
  const std::string how = rounded ? "emulated" : kernels::how_multiplied(config.precision);
  const std::string precision =
      config.precision == kernels::Precision::fp32
          ? ""
          : fmt::format("  {}{}", kernels::name(config.precision), how.empty() ? "" : " (" + how + ")");
  const std::string scale = config.loss_scale.used() ? "  loss scale " + config.loss_scale.text() : "";
  core::print("gradmeter {} ({})  train {}{}{}  {} × batch {}{}  {}{}  {}  step size {}\n{}{}\n{}",
              s.run_info().version, s.run_info().commit, config.model, precision, scale, who, config.batch_per_rank,
              config.accumulate > 1 ? fmt::format(" in {} micro-batches", config.accumulate) : "",
              config.strategy->name, exchange_text(config, layout), config.optimizer_name(),
              step_text(options, layout.batch_global(config)),
              no_core ? "no spare core: overlap off (--overlap bucketed turns it on)\n" : "",
              injection_line(config.injection), train_header());
}

/// This rank's layout. Errors: UsageError with the reason why the ranks cannot train with these options; Unavailable if
/// /dev/shm is too small.
Layout agreed_layout(const Session& s, const TrainOptions& options, const TrainingDataFacts& data) {
  const auto& world = s.world();
  if (const auto why = refusal(options.config, data, s.map()); !why.empty()) throw core::UsageError(why);
  if (const auto shm = shm_bytes(options.config, data, s.map()); shm > s.free_shm_per_node())
    throw core::Unavailable("train: " + runtime::short_of_shm(shm, s.free_shm_per_node()));
  return layout_of(options.config, world.size(), world.rank());
}

/// The codec with its usual warm-up of the density, whose length is a number of epochs. Servers have no warm-up.
compression::CodecChoicePtr warming_up(const TrainingConfig& config, std::size_t steps_per_epoch) {
  if (config.strategy->info().communication == dataparallel::CommunicationPattern::client_server) return config.codec;
  return compression::with_warm_up(config.codec, compression::auto_warm_up_epochs * steps_per_epoch);
}

std::string end_text(const TrainOptions& options, const TrainResult& r) {
  const std::string time = r.has_times ? fmt::format(", {:.2f} s of training", r.seconds) : "";
  const std::string_view target = !options.target ? "" : r.reached ? "reached " : "not reached: ended at ";
  return fmt::format("\n{}{:.2f} % after {} steps{}\n", target, 100 * r.accuracy, r.steps, time);
}

/// For text: the perplexity, which is the number of words among which the model chooses, on average.
std::string perplexity_text(const TrainResult& r) {
  if (!r.is_text) return {};
  return fmt::format(
      "validation perplexity {:.3f} ({:.4f} nats a word){}\n", std::exp(r.validation_loss), r.validation_loss,
      r.least_loss <= 0 ? ""
                        : fmt::format("; the language's own is {:.3f} ({:.4f}){}", std::exp(r.least_loss), r.least_loss,
                                      r.validation_loss < r.least_loss
                                          ? ", and these sentences happen to be easier than the language is on average"
                                          : ""));
}

/// A text of the bytes that all ranks sent, and of the servers' counts.
std::string totals_text(const TrainingTotals& t) {
  std::string out;
  if (t.bytes_known && t.bytes_sent > 0) {
    const std::string most = core::to_text(core::Bytes{t.forecast.bytes / t.steps});
    out += fmt::format("{} sent a step by all ranks{}\n", core::to_text(core::Bytes{t.bytes_sent / t.steps}),
                       t.forecast.exact         ? ", as forecast"
                       : t.forecast.upper_bound ? fmt::format(", of {} at most by the forecast", most)
                                                : "");
  }
  if (t.loss_scale)
    out += fmt::format("loss scale {:g} at the end; {} steps skipped\n", t.loss_scale->scale, t.loss_scale->skipped);
  if (t.observed.updates == 0) return out;
  const auto s = summarise_staleness(t.observed.staleness);
  return out +
         fmt::format("{} updates by workers; staleness {:.2f} on average, {} at the 99th percentile, {} at most\n",
                     t.observed.updates, t.observed.mean_staleness(), s.p99, s.max);
}

std::string noise_text(const TrainOptions& options, const TrainResult& r) {
  if (!options.noise_every) return {};
  if (!r.noise_scale) return "gradient noise scale not known: the noise hides the gradient; look at more steps\n";
  return fmt::format("gradient noise scale {:.0f} samples: a global batch beyond it saves few steps\n", *r.noise_scale);
}

/// Names the files that were asked for and were not written.
void print_unwritten(const TrainOptions& options, const TrainResult& r) {
  const auto note = [](std::string_view what, std::string_view whose) {
    core::print(stderr, "gradmeter: no {} written: the target was reached before {} step\n", what, whose);
  };
  if (options.trace && !r.traced) note("trace was", "its first");
  if (options.dump_gradients && !r.gradients_dumped) note("gradient was", "its");
  if (options.dump_weights && !r.weights_dumped) note("weights were", "their");
}

int run_training(const Flags& flags, const Invocation& invocation) {
  const auto opened = open_session(flags, invocation);
  Session& session = *opened;
  const auto& world = session.world();
  Occupancy occupancy{.ranks_per_node = session.ranks_per_node(world.size()),
                      .cores_per_node = session.cores_per_node(),
                      .ranks = world.size()};
  occupancy.threads = std::max(1, occupancy.cores_per_node / occupancy.ranks_per_node);
  const TrainingDataFacts data = agree_on_data(world, data_directory(flags));
  auto options = read_options(flags, world.size(), occupancy, data);
  auto& config = options.config;
  check_noise_scale(options, world.size());
  read_output_flags(flags);
  const Layout layout = agreed_layout(session, options, data);
  if (const auto note = unused_note("train", flags, exchange_factors(config, layout), world.size());
      session.is_root() && !note.empty())
    core::print(stderr, "{}\n", note);
  const std::size_t samples = std::min(data.train_samples, options.data.train_samples);
  config.codec = warming_up(config, model::Sampler(samples, layout.batch_global(config), 1).steps_per_epoch());
  const bool overlap_is_off = flags.text("overlap") == "auto" && config.overlap == Overlap::none;
  const bool rounded = is_rounded_by_software(config, data);
  TrainResult result;
  return measure(
      measuring_ranks(session), flags, invocation,
      {.experiment = "train",
       .printers = {.tables = {}, .csv = train_csv(), .live = train_row},
       .can_resume = false,
       .check =
           [&] {
             if (options.trace) check_trace_path(options.trace->path, options.trace->replace);
             for (const auto& dump : {options.dump_gradients, options.dump_weights})
               if (dump) compression::check_gradient_path(dump->path, dump->replace);
           },
       .head =
           [&] { print_training_head(session, options, layout, overlap_is_off && exchanges(config, layout), rounded); },
       .measure =
           [&](const auto&, const RowListener& rows) {
             start_drift(config.injection, world);
             const auto table = wanted_table(config, data, session.map(), session.ranks_for(world.size()));
             const std::vector<WantedTable> wanted(table ? 1 : 0, table.value_or(WantedTable{}));
             config.algorithm = with_tables(config.algorithm, tuned_tables(session, flags, wanted));
             const auto planned = [&](std::size_t n) { rows.planned(n, 0); };
             result = run_train(session, options, {.planned = planned, .row = rows.measured, .progress = {}});
             return std::size_t{0};
           },
       .legend =
           [&](auto) {
             return (flags.on("legend") ? train_legend() : "") + end_text(options, result) + perplexity_text(result) +
                    totals_text(result.totals) + noise_text(options, result);
           },
       .end =
           [&](auto) {
             print_unwritten(options, result);
             if (!result.weights_equal)
               throw core::WrongResult("ranks hold different weights after synchronous training");
             if (!result.totals.bytes_agree()) throw core::WrongResult(result.totals.fault());
             return options.target && !result.reached ? core::ExitCode::missed_target : core::ExitCode::done;
           }});
}

Usage train_usage() {
  return {.flags = train_flags(),
          .about =
              "gradmeter train: trains one configuration for --epochs, or until --target is reached\n"
              "\n"
              "mpirun -np 4 gradmeter train --model mlp --batch 32 --target 0.97"};
}

int run_train_command(const Flags& flags, const Invocation& invocation) { return run_training(flags, invocation); }

}  // namespace

extern const Command train_command{.name = "train",
                                   .summary = "trains one configuration: loss, accuracy, time to accuracy",
                                   .with_ranks = true,
                                   .usage = train_usage,
                                   .run = run_train_command};

}  // namespace gradmeter::bench
