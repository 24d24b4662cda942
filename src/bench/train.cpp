#include "bench/train.hpp"

#include <algorithm>
#include <cmath>

#include "bench/gradient_noise.hpp"
#include "compression/gradient_file.hpp"
#include "core/error.hpp"
#include "core/format.hpp"
#include "runtime/clock.hpp"

namespace gradmeter::bench {
namespace {

using core::Factor;
using core::Metric;
using core::Point;

class Run {
 public:
  Run(Session& s, const TrainOptions& o, const TrainListener& l)
      : session_(s),
        options_(o),
        listener_(l),
        batch_global_(o.config.batch_per_rank * static_cast<std::size_t>(s.world().size())),
        data_(model::make_data(o.data)),
        clock_(o.trace ? runtime::measure_clock_offset(s.world()) : runtime::ClockOffset{}),
        training_(s, s.world(), data_, o.config) {
    if (const auto check = training_.check_exchange(); !check.fault.empty()) throw core::WrongResult(check.fault);
  }

  TrainResult run() {
    const std::size_t per_epoch = training_.steps_per_epoch();
    total_steps_ = std::min(per_epoch * options_.epochs, options_.max_steps.value_or(SIZE_MAX));
    if (options_.dump) dump_step_ = dump_step();
    if (options_.trace)
      trace_.emplace(*options_.trace, total_steps_,
                     Timeline(session_.world().rank(), session_.host().hostname, clock_));
    while (result_.steps < total_steps_ && !result_.reached) {
      const std::size_t first = result_.steps, last = std::min(first + per_epoch - first % per_epoch, total_steps_);
      epoch(first, last);
    }
    if (trace_) result_.traced = trace_->write(session_.world());
    result_.weights_equal = !options_.config.strategy->communicates() || training_.weights_equal();
    return result_;
  }

 private:
  void epoch(std::size_t first, std::size_t last) {
    double loss = 0;
    std::vector<double> times;
    double aside = 0;  // looking on is not training
    if (options_.noise_every) noise_.emplace(options_.config.batch_per_rank, batch_global_);
    const double begin = runtime::host_clock();
    for (std::size_t step = first; step < last; ++step) {
      if (step == dump_step_) dump(step);
      if (options_.noise_every && step % *options_.noise_every == 0) look_at_noise(step, aside);
      if (trace_) trace_->before(step, training_.probe());
      const double step_loss = training_.step(step, step_size(step)).loss_sum;
      if (trace_) trace_->after(step, training_.record(), training_.probe());
      loss += step_loss;
      times.push_back(training_.record().step.length());
      if (options_.log_every && step % *options_.log_every == 0) log_step(step, step_loss);
      if (session_.is_root() && listener_.progress) {
        listener_.progress(step, total_steps_, step_loss / static_cast<double>(options_.config.batch_per_rank));
      }
      if ((step - first) % 16 == 15) session_.stop_if_interrupted(session_.world());
    }
    result_.seconds += session_.world().max(runtime::host_clock() - begin - aside);
    result_.steps = last;
    const double samples = static_cast<double>((last - first) * batch_global_);
    const double mean_loss = session_.world().sum(loss) / samples;
    if (!std::isfinite(mean_loss)) {
      throw core::WrongResult(fmt::format("the loss is {} after step {}: the step size {} is too large", mean_loss,
                                          last, options_.config.step_size));
    }
    result_.accuracy = training_.validation_accuracy();
    result_.reached = options_.target && result_.accuracy >= *options_.target;
    emit(last, mean_loss, result_.accuracy, times);
  }

  void look_at_noise(std::size_t step, double& aside) {
    const runtime::Timed timed(aside);
    noise_->add(gradient_norms(session_.world(), training_.local_gradient(step)));
  }

  void add_noise(core::Metrics& m) {
    if (!noise_ || noise_->steps() == 0) return;
    if (const double square = noise_->gradient_square(); square > 0) m[Metric::gradient_norm] = std::sqrt(square);
    m[Metric::gradient_variance] = noise_->variance();
    result_.noise_scale = noise_->samples();
    if (result_.noise_scale) m[Metric::noise_scale_samples] = *result_.noise_scale;
  }

  std::size_t dump_step() const {
    constexpr std::size_t usual = 100;  // past the first steps, whose gradients are those of random weights
    const std::size_t step = options_.dump->step.value_or(std::min(usual, total_steps_ - 1));
    if (step < total_steps_) return step;
    throw core::UsageError(fmt::format("--dump-step {}: the run has {} steps, the first is 0", step, total_steps_));
  }

  void dump(std::size_t step) {
    result_.dumped = true;
    if (!session_.is_root()) return;
    compression::RecordedGradient head{training_.model().name(), step, {}, {}};
    for (const auto& t : training_.model().tensors()) head.tensors.push_back({t.name, t.shape, t.offset, t.count});
    compression::write_gradient(options_.dump->path, head, training_.local_gradient(step), options_.dump->replace);
  }

  float step_size(std::size_t step) const {
    return options_.step_rule.at(
        {.step = step, .epoch_steps = training_.steps_per_epoch(), .steps = total_steps_, .batch = batch_global_},
        static_cast<double>(options_.config.step_size), options_.warmup_epochs);
  }

  void log_step(std::size_t step, double mine) {
    const double loss = session_.world().sum(mine) / static_cast<double>(batch_global_);
    if (session_.is_root()) emit(step, loss, std::nullopt, {});
  }

  void emit(std::size_t step, double loss, std::optional<double> accuracy, const std::vector<double>& times) {
    Point p{.experiment = "train",
            .status = core::Status::ok,
            .reason = {},
            .factors = factors(),
            .metrics = {},
            .raw_times_s = times};
    p.metrics[Metric::step] = static_cast<std::int64_t>(step);
    p.metrics[Metric::loss] = loss;
    if (accuracy) {
      p.metrics[Metric::accuracy] = *accuracy;
      add_noise(p.metrics);
      p.metrics[Metric::epoch] = static_cast<double>(step) / static_cast<double>(training_.steps_per_epoch());
      if (!times.empty()) p.metrics[Metric::time_s] = core::summarise(times);
      p.metrics[Metric::samples_per_s] = static_cast<double>(result_.steps * batch_global_) / result_.seconds;
    }
    if (session_.is_root()) listener_.row(p);
  }

  core::Factors factors() const {
    const auto& c = options_.config;
    const auto integer = [](auto n) { return static_cast<std::int64_t>(n); };
    const int ranks = session_.world().size();
    core::Factors f;
    f[Factor::ranks] = integer(ranks);
    f[Factor::nodes] = integer(session_.nodes(ranks));
    f[Factor::ranks_per_node] = integer(session_.ranks_per_node(ranks));
    f[Factor::model] = training_.model().name();
    f[Factor::batch_per_rank] = integer(c.batch_per_rank);
    f[Factor::batch_global] = integer(batch_global_);
    f[Factor::threads] = integer(c.threads);
    f[Factor::precision] = std::string("fp32");
    f[Factor::strategy] = c.strategy->name;
    f[Factor::device] = std::string("cpu");
    if (c.strategy->communicates() && ranks > 1) {
      f[Factor::algorithm] = c.algorithm->name;
      f[Factor::codec] = c.codec ? c.codec->name : "none";
      f[Factor::op] = std::string("avg");
      f[Factor::overlap] = std::string(name(c.overlap));
      f[Factor::bucket_bytes] = integer(c.bucket_bytes);
      if (!c.algorithm->is_vendor()) f[Factor::transport] = std::string(training_.transport_name());
    }
    return f;
  }

  Session& session_;
  const TrainOptions& options_;
  const TrainListener& listener_;
  std::size_t batch_global_;
  model::DataSplit data_;
  runtime::ClockOffset clock_;  ///< before the training, which may keep MPI to itself
  Training training_;
  std::size_t total_steps_ = 0;
  std::optional<std::size_t> dump_step_;
  std::optional<NoiseScale> noise_;  ///< of this epoch
  std::optional<Trace> trace_;
  TrainResult result_;
};

}  // namespace

void check_noise_scale(const TrainOptions& o, int ranks) {
  if (!o.noise_every) return;
  if (ranks == 1) {
    throw core::UsageError(
        "--noise-scale compares gradients of two batch sizes, one rank's and all ranks': start at "
        "least two ranks");
  }
  if (!o.config.strategy->info().keeps_equal) {
    throw core::UsageError(
        fmt::format("--noise-scale compares ranks' gradients at the same weights, and {} lets weights "
                    "differ; use sync",
                    o.config.strategy->name));
  }
}

TrainResult run_train(Session& s, const TrainOptions& o, const TrainListener& l) {
  check_noise_scale(o, s.world().size());
  return Run(s, o, l).run();
}

}  // namespace gradmeter::bench
