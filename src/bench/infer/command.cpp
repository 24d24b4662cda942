// SPDX-License-Identifier: Apache-2.0
// The options of `gradmeter infer`.
#include <cstdio>

#include "bench/engine/command.hpp"
#include "bench/engine/devices.hpp"
#include "bench/engine/flags.hpp"
#include "bench/engine/measuring.hpp"
#include "bench/engine/output.hpp"
#include "bench/infer/infer.hpp"
#include "bench/train/flags.hpp"
#include "core/error.hpp"
#include "core/format.hpp"
#include "core/print.hpp"
#include "core/table.hpp"
#include "dataparallel/optimizers/optimizer.hpp"
#include "runtime/host/environment.hpp"
#include "runtime/process/progress.hpp"

namespace gradmeter::bench {

FlagList describe_infer();

/// Reads the options. Errors: UsageError of one line, also if models or batches do not fit the data.
InferOptions read_infer_options(const Flags&, const TrainingDataFacts&, int default_threads);

namespace {

InferFactors read_infer_factors(const Flags& flags, const TrainingDataFacts& data) {
  InferFactors out;
  out.models = parse_models(flags.text("model"), read_shrink(flags), data);
  for (const auto b : parse_counts("--batch", flags.text("batch"), 1, 1U << 20U)) out.batches.push_back(b);
  out.precisions = choose("--precision", "precision", flags.text("precision"), kernels::precisions(),
                          [](auto p) { return std::string(kernels::name(p)); });
  out.on_host = flags.text("device") == "cpu";
  return out;
}

/// Reads the options of the training, which runs on one rank and exchanges nothing.
TrainOnceOptions read_training(const Flags& flags, const TrainingDataFacts& data, int threads) {
  TrainOnceOptions o;
  auto& config = o.config;
  config.batch_per_rank = parse_count("--train-batch", flags.text("train-batch"), 1, 1U << 20U);
  config.threads = threads;
  config.device = flags.text("device");
  config.strategy = dataparallel::find_strategy("independent");
  config.overlap = Overlap::none;
  config.optimizer = flags.text("optimizer");
  dataparallel::make_optimizer(config.optimizer, {.elements = 1});
  config.step_size = static_cast<float>(parse_number("--lr", flags.text("lr"), 1e-9, 1e3));
  config.seed = parse_count("--seed", flags.text("seed"), 0, UINT64_MAX);
  o.epochs = parse_count("--epochs", flags.text("epochs"), 1, 1U << 20U);
  o.calibration_samples = parse_count("--calibration-samples", flags.text("calibration-samples"), 1, 1U << 30U);
  const auto samples = std::min<std::uint64_t>(
      data.train_samples, parse_count("--train-samples", flags.text("train-samples"), 1, 1U << 30U));
  if (config.batch_per_rank > samples)
    throw core::UsageError(fmt::format("--train-batch {}: there are {} samples to train on; take a smaller batch",
                                       config.batch_per_rank, samples));
  return o;
}

}  // namespace

FlagList describe_infer() {
  FlagList list(heading_of_factors, 110);
  add_switch(list, "help,h", "this text");
  add_text(list, "model", "mlp",
           "mlp, cnn, lstm, gru … as in train; layer tables, of which only latency is measured: resnet50, FILE.csv; "
           "see list models");
  add_text(list, "shrink", "1", "divide the widths of layer tables by this");
  add_text(list, "batch", "1,2,4,16", "samples in one forward pass");
  add_text(list, "precision", "fp32,bf16,int8",
           "fp32, bf16, int8; only accuracy, no times: int4, and on the CPU fp16, fp8-e4m3 …; see list precisions");
  add_text(list, "epochs", "2", "epochs of the training");
  add_text(list, "train-batch", "64", "mini-batch of the training");
  add_text(list, "train-samples", "10000", "training samples: built-in digits, or the first ones of the files");
  add_text(list, "optimizer", "adam", "optimizer of the training: sgd, momentum:mu=0.9, adamw …");
  add_text(list, "lr", "0.001", "step size of the training");
  add_text(list, "validation-samples", "5000", "samples on which precisions are compared with fp32");
  add_text(list, "calibration-samples", "512", "training samples that give int8 the ranges of activations");
  add_text(list, "threads", "", "compute threads of a rank; default: cores of a node / ranks of a node");
  add_text(list, "device", "cpu", "cpu, or cuda: the ranks of a node are dealt out over its GPUs");
  add_text(
      list, "data", "",
      "directory of MNIST's IDX files; for language models: language (built in) or FILE; default: built-in digits");
  add_text(list, "seed", "1", "random seed of data, order and initial weights");
  add_stopping_flags(
      list, {.budget = "for all points and trainings together: 90s, 10m; default: 1 s a point, beside the trainings",
             .samples = "minimum number of passes for each point, if --time-budget allows",
             .least_samples = "200"});
  add_rank_flags(list);
  add_switch(list, "dry-run", "only list the points; train and measure nothing");
  add_format_flags(list);
  add_output_flags(list);
  return list;
}

InferOptions read_infer_options(const Flags& flags, const TrainingDataFacts& data, int default_threads) {
  check_one_of("--device", flags.text("device"), device_names);
  InferOptions o;
  o.factors = read_infer_factors(flags, data);
  const int threads = flags.has("threads") ? static_cast<int>(parse_count("--threads", flags.text("threads"), 1, 1024))
                                           : default_threads;
  o.training = read_training(flags, data, threads);
  o.data = {.source = data_directory(flags),
            .train_samples = parse_count("--train-samples", flags.text("train-samples"), 1, 1U << 30U),
            .validation_samples = parse_count("--validation-samples", flags.text("validation-samples"), 1, 1U << 30U),
            .seed = o.training.config.seed};
  read_stopping(flags, o.rule, o.time_budget);
  return o;
}

// gradmeter infer: latency of forward passes, and what quantization after training costs in accuracy.

namespace {

int print_infer_plan(const Flags& flags) {
  if (planned_launcher(flags).rank != 0) return 0;
  read_format(flags);
  read_output_flags(flags);
  const TrainingDataFacts data = read_data_shape(flags.has("data") ? flags.text("data") : "");
  const auto options = read_infer_options(flags, data, 1);
  const OpenedDevice opened = open_device(options.training.config.device);
  const runtime::Device& device = opened.device ? *opened.device : runtime::host_device();
  using enum core::Align;
  core::Table table({{"model", "", left}, {"batch", "", right}, {"precision", "", left}});
  std::size_t unsupported = 0;
  for (const auto& p : plan_infer(options.factors)) {
    const auto why = infer_refusal(p, data, device);
    table.add_row({p.model, p.is_timed() ? std::to_string(p.batch) : "-", std::string(kernels::name(p.precision))},
                  why.empty() ? "" : fmt::format("unsupported: {}", why));
    unsupported += !why.empty();
  }
  core::print("{}\n{}, {} of them unsupported\n", table.to_string(table_width(flags)),
              report::counted(table.rows(), "point"), unsupported);
  return 0;
}

void print_infer_head(const Session& s, const TrainOnceOptions& t, std::size_t train_samples) {
  const auto& info = s.run_info();
  core::print(
      "{}, {} thread{} each  {}\n"
      "trained in fp32 by rank 0: {} epoch{} of {} samples, batch {}, {}, step size {}; int8 calibrated on {}\n\n",
      head_line(info, "infer"), t.config.threads, t.config.threads == 1 ? "" : "s", info.cpu, t.epochs,
      t.epochs == 1 ? "" : "s", train_samples, t.config.batch_per_rank, t.config.optimizer, t.config.step_size,
      t.calibration_samples);
}

int measure_inference(const Flags& flags, const Invocation& invocation) {
  const auto session = open_session(flags, invocation);
  const auto& world = session->world();
  const TrainingDataFacts data = agree_on_data(world, flags.has("data") ? flags.text("data") : "");
  const int threads = std::max(1, session->cores_per_node() / session->ranks_per_node(world.size()));
  const auto options = read_infer_options(flags, data, threads);
  return measure(
      measuring_ranks(*session), flags, invocation,
      {.experiment = "infer",
       .points = plan_infer(options.factors).size(),
       .printers = {infer_tables, infer_csv()},
       .head =
           [&] {
             print_infer_head(*session, options.training, std::min(data.train_samples, options.data.train_samples));
           },
       .measure = [&](const auto& finished, const auto& rows) { return run_infer(*session, options, finished, rows); },
       .legend = [&](auto) { return infer_legend(read_legend(flags)); }});
}

Usage infer_usage() {
  return {
      .flags = describe_infer(),
      .about =
          "gradmeter infer: trains models in fp32, quantizes them, and measures the latency of a forward pass (median\n"
          "and tail, on all ranks at once) and the accuracy that each precision loses on the same samples\n"
          "\n"
          "gradmeter infer --model mlp,cnn,lstm --batch 1,4,16 --precision fp32,bf16,int8,int4 --out r.jsonl\n"
          "gradmeter infer --model resnet50 --batch 1,4"};
}

int run_infer_command(const Flags& flags, const Invocation& invocation) {
  return flags.on("dry-run") ? print_infer_plan(flags) : measure_inference(flags, invocation);
}

}  // namespace

extern const Command infer_command{
    .name = "infer",
    .summary = "latency of forward passes, and what quantization after training costs in accuracy",
    .with_ranks = true,
    .usage = infer_usage,
    .run = run_infer_command};

}  // namespace gradmeter::bench
