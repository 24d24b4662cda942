#include "cli/flags/infer_flags.hpp"

#include "cli/devices.hpp"
#include "cli/flags/training_flags.hpp"
#include "cli/output.hpp"
#include "cli/row_output.hpp"
#include "core/error.hpp"
#include "core/format.hpp"
#include "dataparallel/optimizers/registry.hpp"

namespace gradmeter::cli {
namespace {

bench::InferFactors read_infer_factors(const Flags& f, const DataShape& data) {
  bench::InferFactors out;
  out.models = parse_models(f.text("model"), parse_count("--shrink", f.text("shrink"), 1, 1024), data);
  for (const auto b : parse_counts("--batch", f.text("batch"), 1, 1U << 20U)) out.batches.push_back(b);
  out.precisions = choose("--precision", "precision", f.text("precision"), kernels::precisions(),
                          [](auto p) { return std::string(kernels::name(p)); });
  out.on_host = f.text("device") == "cpu";
  return out;
}

/// Of one rank that exchanges nothing.
bench::TrainOnce read_training(const Flags& f, const DataShape& data, int threads) {
  bench::TrainOnce o;
  auto& c = o.config;
  c.batch_per_rank = parse_count("--train-batch", f.text("train-batch"), 1, 1U << 20U);
  c.threads = threads;
  c.device = f.text("device");
  c.strategy = dataparallel::find_strategy("independent");
  c.overlap = bench::Overlap::none;
  c.optimizer = f.text("optimizer");
  dataparallel::make_optimizer(c.optimizer, {.elements = 1});
  c.step_size = static_cast<float>(parse_number("--lr", f.text("lr"), 1e-9, 1e3));
  c.seed = parse_count("--seed", f.text("seed"), 0, UINT64_MAX);
  o.epochs = parse_count("--epochs", f.text("epochs"), 1, 1U << 20U);
  o.calibration_samples = parse_count("--calibration-samples", f.text("calibration-samples"), 1, 1U << 30U);
  const auto samples = std::min<std::uint64_t>(data.train_samples,
                                               parse_count("--train-samples", f.text("train-samples"), 1, 1U << 30U));
  if (c.batch_per_rank > samples)
    throw core::UsageError(fmt::format("--train-batch {}: there are {} samples to train on; take a smaller batch",
                                       c.batch_per_rank, samples));
  return o;
}

}  // namespace

options::options_description describe_infer() {
  options::options_description d("Flags (a comma list makes a factor; all gives every value there is)", 110);
  d.add_options()("help,h", "this text");
  add_text(d, "model", "mlp", "mlp, cnn, lstm, gru … as in train; layer tables: resnet50, FILE.csv; see list models");
  add_text(d, "shrink", "1", "divide the widths of layer tables by this");
  add_text(d, "batch", "1,2,4,16", "samples of a pass");
  add_text(d, "precision", "fp32,bf16,int8",
           "fp32, bf16, int8; for accuracy alone fp16, fp8-e4m3, int4 …; see list precisions");
  add_text(d, "epochs", "2", "of the training");
  add_text(d, "train-batch", "64", "its mini-batch");
  add_text(d, "train-samples", "10000", "of the built-in digits, or the first of the files");
  add_text(d, "optimizer", "adam", "its optimizer: sgd, momentum:mu=0.9, adamw …");
  add_text(d, "lr", "0.001", "its step size");
  add_text(d, "validation-samples", "5000", "on which precisions are compared with fp32");
  add_text(d, "calibration-samples", "512", "of the training set, on which int8 finds the ranges of activations");
  add_text(d, "threads", "", "compute threads a rank; default cores a node / ranks a node");
  add_text(d, "device", "cpu", "cpu, or cuda: ranks of a node take its GPUs in turn");
  add_text(d, "data", "",
           "directory of MNIST's IDX files; language or FILE for language models; default the built-in digits");
  add_text(d, "seed", "1", "of data, order and weights");
  add_text(d, "time-budget", "", "for all points together, trainings too: 90s, 10m; default 1 s a point");
  add_text(d, "min-samples", "200", "passes a point at least, as far as its time allows");
  add_text(d, "precision-goal", "0.025", "half width of the median's 95 % interval, relative, at which a point stops");
  add_rank_flags(d);
  add_switch(d, "dry-run", "say which points; train and measure nothing");
  add_format_flags(d);
  add_output_flags(d);
  return d;
}

bench::InferOptions read_infer_options(const Flags& f, const DataShape& data, int default_threads) {
  check_only("--device", f.text("device"), device_names);
  bench::InferOptions o;
  o.factors = read_infer_factors(f, data);
  const int threads =
      f.has("threads") ? static_cast<int>(parse_count("--threads", f.text("threads"), 1, 1024)) : default_threads;
  o.training = read_training(f, data, threads);
  o.data = {.source = data_directory(f),
            .train_samples = parse_count("--train-samples", f.text("train-samples"), 1, 1U << 30U),
            .validation_samples = parse_count("--validation-samples", f.text("validation-samples"), 1, 1U << 30U),
            .seed = o.training.config.seed};
  if (f.has("time-budget")) o.time_budget = parse_time("--time-budget", f.text("time-budget"));
  o.rule.min_samples = parse_count("--min-samples", f.text("min-samples"), 3, 1'000'000);
  o.rule.relative_half_width = parse_number("--precision-goal", f.text("precision-goal"), 1e-4, 1);
  return o;
}

}  // namespace gradmeter::cli
