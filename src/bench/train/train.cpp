// SPDX-License-Identifier: Apache-2.0
#include "bench/train/train.hpp"

#include <algorithm>
#include <cmath>

#include "bench/train/flags.hpp"
#include "bench/train/metrics.hpp"
#include "bench/train/training.hpp"
#include "compression/test_gradients.hpp"
#include "core/error.hpp"
#include "core/format.hpp"
#include "core/random.hpp"
#include "kernels/host/library.hpp"
#include "runtime/clock.hpp"
#include "runtime/host/kernel_files.hpp"

namespace gradmeter::bench {
namespace {

using core::Factor;
using core::Metric;
using core::Point;

/// Loads the data. Then it forgets the process's peak of memory, since what loading takes for a while is no part of the
/// training's peak.
model::DataSplit data_before_training(Session& s, const TrainOptions& o) {
  auto data = load_data(s.world(), o.data);
  s.world().sleeping_barrier();
  runtime::forget_peak_memory();
  return data;
}

class TrainRun {
 public:
  TrainRun(Session& s, const TrainOptions& o, const TrainListener& l)
      : session_(s),
        options_(o),
        listener_(l),
        data_(data_before_training(s, o)),
        clock_(o.trace ? std::optional<runtime::SharedClock>(std::in_place, s.world()) : std::nullopt),
        training_(s, s.world(), data_, o.config),
        batch_global_(training_.batch_global()),
        rounds_by_software_(is_rounded_by_software(o.config, facts_of(data_))) {
    if (const auto check = training_.check_sums(); !check.fault.empty()) throw core::WrongResult(check.fault);
  }

  TrainResult run() {
    const std::size_t epoch_steps = training_.steps_per_epoch();
    total_steps_ = std::min(epoch_steps * options_.epochs, options_.max_steps.value_or(SIZE_MAX));
    if (session_.is_root() && listener_.planned) listener_.planned(planned_rows(epoch_steps));
    plan_dumps();
    if (options_.trace)
      trace_.emplace(*options_.trace, total_steps_, RankEvents(session_.world().rank(), session_.host().hostname));
    while (result_.steps < total_steps_ && !result_.reached) {
      const std::size_t first = result_.steps, last = std::min(first + epoch_steps - first % epoch_steps, total_steps_);
      epoch(first, last);
    }
    return result_;
  }

 private:
  std::size_t planned_rows(std::size_t epoch_steps) const {
    const auto rows = [this](std::size_t every) { return (total_steps_ + every - 1) / every; };
    return rows(epoch_steps) + (options_.log_every ? rows(*options_.log_every) : 0);
  }

  void epoch(std::size_t first, std::size_t last) {
    epoch_samples_ = {};
    epoch_loss_ = 0;
    if (options_.noise_every) noise_.emplace(options_.config.batch_per_rank, batch_global_);
    training_.draw_epoch(first);
    const std::size_t verified = first + place_of_verified(first, last - first);
    const double begin = runtime::host_clock();
    for (std::size_t step = first; step < last; ++step) {
      if (reads_model_before(step)) end_steps();  // the time of the steps so far counts as training
      dump(step);
      if (step == first || step == verified || step + 1 == total_steps_) training_.verify_next();
      if (options_.noise_every && step % *options_.noise_every == 0) measure_noise_scale(step);
      if (trace_) trace_->before(step, training_.probe());
      submitted_.push_back({step, training_.step(step, step_size(step))});
      if (!training_.runs_ahead() || submitted_.size() == most_steps_ahead) end_steps();
      if ((step - first) % steps_between_syncs() == steps_between_syncs() - 1) synchronise();
    }
    synchronise();
    result_.steps = last;
    const double mean_loss = end_of_epoch(begin, epoch_loss_) / labels((last - first) * batch_global_);
    if (!std::isfinite(mean_loss)) diverged(last, mean_loss);
    step_times_ = times_of_slowest();
    const Validation validation = training_.validate();
    result_.accuracy = validation.accuracy;
    result_.validation_loss = validation.loss;
    result_.least_loss = data_.validation->least_loss();
    result_.is_text = data_.validation->labels() > 1;
    result_.reached = options_.target && result_.accuracy >= *options_.target;
    const bool is_last = result_.reached || last == total_steps_;
    if (is_last) end();
    peak_memory_ = peak_memory();
    const auto observed = is_last ? result_.totals.observed : training_.observed();
    loss_scale_ = is_last ? result_.totals.loss_scale : training_.loss_scale();
    if (session_.is_root()) epoch_row(last, mean_loss, observed, is_last);
  }

  /// The place, in an epoch of so many steps, of the step that is verified besides the first; the same on all ranks.
  std::size_t place_of_verified(std::size_t first, std::size_t steps) const {
    constexpr std::uint64_t stream = 0x7e51f1;
    return static_cast<std::size_t>(core::Random(options_.config.seed, stream).uniform(first) *
                                    static_cast<double>(steps));
  }

  /// Ends the run with an error, after a failed row, so that a sweep of step sizes shows where the run ended.
  [[noreturn]] void diverged(std::size_t step, double loss) {
    const std::string why = fmt::format("the loss is {} after step {}: the step size {} is too large", loss, step,
                                        options_.config.step_size);
    if (session_.is_root()) {
      Point p = row(step, loss);
      p.status = core::Status::failed;
      p.reason = why;
      listener_.row(p);
    }
    throw core::WrongResult(why);
  }

  /// Workers that may be at different steps must not be stopped often.
  std::size_t steps_between_syncs() const { return training_.uses_ports() ? 128 : 16; }

  /// Waits for the steps that were submitted, and takes what they did.
  void end_steps() {
    const auto records = training_.take_records();
    for (std::size_t i = 0; i < submitted_.size(); ++i) {
      const auto& [step, outcome] = submitted_[i];
      end_step(step, outcome.place()->loss_sum, records[i]);  // known, since the queue has been waited for
    }
    submitted_.clear();
  }

  void end_step(std::size_t step, double loss, const dataparallel::StepRecord& record) {
    if (trace_) trace_->after(step, record, training_.probe());
    epoch_loss_ += loss;
    add_sample(record);
    if (options_.log_every && step % *options_.log_every == 0) logged_.push_back({step, loss});
    if (session_.is_root() && listener_.progress)
      listener_.progress(step, total_steps_, loss / labels(options_.config.batch_per_rank));
  }

  /// Waits for all steps, throws if a check found a fault, gives logged losses to the listener, and handles signals.
  /// Collective.
  void synchronise() {
    end_steps();
    training_.quiesce();
    if (const auto fault = training_.take_fault(); !fault.empty()) throw core::WrongResult(fault);
    for (const auto& [step, mine] : logged_) {
      const double loss = session_.world().sum(mine) / labels(batch_global_);
      if (session_.is_root()) listener_.row(row(step, loss));
    }
    logged_.clear();
    session_.stop_between_points(session_.world());
  }

  /// Adds the epoch's time to the training's, and returns the sum of the ranks' losses. Collective.
  double end_of_epoch(double begin, double loss) {
    result_.seconds += session_.world().max(runtime::host_clock() - begin - epoch_samples_.outside_training);
    return session_.world().sum(loss);
  }

  /// The times of the epoch's steps, or means over a period: each that of the rank that took longest, or, where ranks
  /// go at their own pace and have no step in common, all those of the rank with the longest median. Collective.
  std::vector<double> times_of_slowest() const {
    std::vector<double> times = period_means(epoch_samples_.times, training_.period());
    if (training_.uses_ports()) {
      const double median = times.empty() ? 0 : core::median(times);
      if (median < session_.world().max(median)) times.clear();
    }
    const double most = session_.world().max(static_cast<double>(times.size()));
    times.resize(static_cast<std::size_t>(most));  // a rank that only serves, or whose times do not count, has none
    session_.world().max(times);
    return times;
  }

  void end() {
    result_.has_times = !is_emulated();
    result_.weights_equal = training_.weights_agree();
    result_.totals = training_.finish();
    if (!trace_) return;
    clock_->resynchronise();
    result_.traced = trace_->write(session_.world(), clock_->model());
  }

  /// The peak memory of the rank that had most [bytes]; ranks that are threads count as equal parts of their process.
  /// Collective.
  double peak_memory() const {
    const auto& world = session_.world();
    const double mine = static_cast<double>(runtime::peak_memory_bytes());
    return world.max(world.ranks_as() == runtime::RanksAs::threads ? mine / world.size() : mine);
  }

  void add_sample(const dataparallel::StepRecord& r) {
    if (!training_.layout().trains()) return;
    epoch_samples_.times.push_back(r.step.length());
    for (const auto& w : r.waits) epoch_samples_.waits[std::string(w.label)] += w.when.length();
  }

  void measure_noise_scale(std::size_t step) {
    const runtime::Timed timed(epoch_samples_.outside_training);  // measuring is not training
    const auto mine = training_.local_gradient(step);
    training_.quiesce();
    noise_->add(gradient_norms(session_.world(), mine));
  }

  void add_noise(core::Metrics& m) {
    if (!noise_ || noise_->steps() == 0) return;
    if (const double square = noise_->gradient_square(); square > 0) m[Metric::gradient_norm] = std::sqrt(square);
    m[Metric::gradient_variance] = noise_->variance();
    result_.noise_scale = noise_->samples();
    if (result_.noise_scale) m[Metric::noise_scale_samples] = *result_.noise_scale;
  }

  void plan_dumps() {
    constexpr std::size_t usual = 100;  // past the first steps, whose gradients are those of random weights
    if (options_.dump_gradients)
      gradients_step_ = dump_step(*options_.dump_gradients, std::min(usual, total_steps_ - 1));
    if (options_.dump_weights) weights_step_ = dump_step(*options_.dump_weights, 0);
  }

  std::size_t dump_step(const Dump& d, std::size_t usual) const {
    const std::size_t step = d.step.value_or(usual);
    if (step < total_steps_) return step;
    throw core::UsageError(fmt::format("--dump-step {}: the run has {} steps, the first is 0", step, total_steps_));
  }

  bool reads_model_before(std::size_t step) const {
    return (options_.noise_every && step % *options_.noise_every == 0) || step == weights_step_ ||
           step == gradients_step_;
  }

  void dump(std::size_t step) {
    if (step != weights_step_ && step != gradients_step_) return;
    const runtime::Timed timed(epoch_samples_.outside_training);  // a file is no training
    if (step == weights_step_) {
      result_.weights_dumped = true;
      if (session_.is_root()) write(*options_.dump_weights, step, training_.weights());
    }
    if (step == gradients_step_) {
      result_.gradients_dumped = true;
      const auto mine = training_.local_gradient(step);  // the ranks of a replica compute it together
      if (session_.is_root()) write(*options_.dump_gradients, step, mine);
    }
    training_.quiesce();
    session_.world().sleeping_barrier();  // so that no other rank waits for the writing one within a step
  }

  void write(const Dump& d, std::size_t step, std::span<const float> values) const {
    compression::RecordedGradient head{training_.model().name(), step, {}, {}};
    for (const auto& t : training_.model().tensors()) head.tensors.push_back({t.name, t.shape, t.offset, t.count});
    compression::write_gradient(d.path, head, values, d.replace);
  }

  float step_size(std::size_t step) const {
    return options_.step_rule.at(
        {.step = step, .epoch_steps = training_.steps_per_epoch(), .steps = total_steps_, .batch = batch_global_},
        static_cast<double>(options_.config.step_size), options_.warmup_epochs);
  }

  Point row(std::size_t step, double loss) const {
    Point p{.experiment = "train",
            .status = core::Status::ok,
            .reason = kernels::how_multiplied(options_.config.precision),
            .factors = factors(),
            .metrics = {},
            .raw_times_s = {}};
    p.metrics[Metric::step] = static_cast<std::int64_t>(step);
    p.metrics[Metric::loss] = loss;
    if (is_emulated()) p.metrics[Metric::emulated] = true;
    return p;
  }

  void epoch_row(std::size_t step, double loss, const dataparallel::Observations& observed, bool is_last) {
    Point p = row(step, loss);
    auto& m = p.metrics;
    m[Metric::accuracy] = result_.accuracy;
    m[Metric::validation_loss] = result_.validation_loss;
    if (const auto bytes = training_.chosen_bucket())
      m[Metric::bucket_chosen_bytes] = static_cast<std::int64_t>(*bytes);
    if (const auto& ends = training_.chosen_ends(); !ends.empty())
      m[Metric::bucket_chosen_ends] = fmt::format("{}", fmt::join(ends, ","));
    m[Metric::epoch] = static_cast<double>(step) / static_cast<double>(training_.steps_per_epoch());
    if (peak_memory_ > 0) m[Metric::peak_memory_bytes] = static_cast<std::int64_t>(peak_memory_);
    if (!is_emulated()) fill_times(p);
    add_noise(m);
    fill_observations(observed, result_.seconds, m);
    fill_loss_scale(loss_scale_, m);
    if (is_last) fill_totals(result_.totals, p);
    if (result_.reached) {
      m[Metric::samples_to_target] = static_cast<std::int64_t>(result_.steps * batch_global_);
      if (!is_emulated()) m[Metric::time_to_target_s] = result_.seconds;
    }
    listener_.row(p);
  }

  double labels(std::size_t samples) const { return static_cast<double>(samples * data_.train->labels()); }
  bool is_emulated() const { return rounds_by_software_ || session_.device().is_emulated(); }

  void fill_times(Point& p) const {
    p.raw_times_s = step_times_;
    core::Blocks blocks;
    blocks.add(step_times_);  // steps in a row depend on each other, so an epoch is one block and has no interval
    if (blocks.count() > 0) p.metrics[Metric::time_s] = core::summarise(blocks);
    p.metrics[Metric::samples_per_s] = static_cast<double>(result_.steps * batch_global_) / result_.seconds;
    fill_waits(epoch_samples_, p.metrics);
  }

  core::Factors factors() const {
    const auto& c = options_.config;
    const auto applies = exchange_factors(c, training_.layout());
    core::Factors f;
    fill_ranks(session_.map(), f);
    fill_training(c, applies, f);
    if (c.mesh.replica_ranks() > 1) f[Factor::mesh] = training_.layout().mesh.text();
    f[Factor::batch_global] = static_cast<std::int64_t>(batch_global_);
    if (applies.transport) f[Factor::transport] = std::string(training_.transport_name());
    if (const auto use = table_use(c, training_.layout(), session_.map())) fill_tuned(*c.algorithm, *use, f);
    return f;
  }

  Session& session_;
  const TrainOptions& options_;
  const TrainListener& listener_;
  model::DataSplit data_;
  std::optional<runtime::SharedClock> clock_;  ///< set before the training, which may keep MPI to itself, and after it
  Training training_;
  std::size_t batch_global_;
  const bool rounds_by_software_;
  std::size_t total_steps_ = 0;
  /// The steps before which gradients and weights are dumped.
  std::optional<std::size_t> gradients_step_, weights_step_;
  static constexpr std::size_t most_steps_ahead = 16;
  struct Submitted {
    std::size_t step;
    model::PendingOutcome outcome;
  };
  std::vector<Submitted> submitted_;  ///< steps whose records have not been taken, at most `most_steps_ahead`
  double epoch_loss_ = 0;             ///< the sum of losses over the epoch's steps of this rank that have ended
  StepSamples epoch_samples_;         ///< this rank's samples of the epoch
  std::vector<double> step_times_;    ///< the times of the epoch's steps, on the rank that took longest
  std::vector<std::pair<std::size_t, double>>
      logged_;                       ///< steps and this rank's sums of losses that have not become rows yet
  std::optional<NoiseScale> noise_;  ///< the noise scale of this epoch
  std::optional<Trace> trace_;
  std::optional<dataparallel::LossScaler::State> loss_scale_;  ///< after this epoch
  double peak_memory_ = 0;                                     ///< until this epoch's end [bytes]; 0: not known
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
  const Layout layout = layout_of(o.config, ranks, 0);
  if (layout.workers != ranks) {
    throw core::UsageError(
        fmt::format("--noise-scale wants every rank to have a gradient of the whole model, and {} with mesh {} gives "
                    "{} of {} one; leave out servers, tensor and pipeline",
                    o.config.strategy->name, layout.mesh.text(), layout.workers, ranks));
  }
  if (!o.config.strategy->info().keeps_workers_equal) {
    throw core::UsageError(
        fmt::format("--noise-scale compares ranks' gradients at the same weights, and {} lets weights "
                    "differ; use sync",
                    o.config.strategy->name));
  }
}

TrainResult run_train(Session& s, const TrainOptions& o, const TrainListener& l) {
  check_noise_scale(o, s.world().size());
  return TrainRun(s, o, l).run();
}

}  // namespace gradmeter::bench
