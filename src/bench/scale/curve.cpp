// SPDX-License-Identifier: Apache-2.0
#include "bench/scale/curve.hpp"

#include <algorithm>
#include <limits>
#include <optional>

#include "bench/engine/rounds.hpp"
#include "bench/scale/step_timeline.hpp"
#include "core/error.hpp"
#include "core/format.hpp"

namespace gradmeter::bench {

RankGroup& RankGroups::of(const ScalePoint& p) {
  auto ranks = session_.ranks_for(p.ranks, p.placement.value_or(Placement::packed));
  const auto it = rank_groups_.find(ranks);
  if (it != rank_groups_.end()) return it->second;
  const auto& world = session_.world();
  const auto place = std::find(ranks.begin(), ranks.end(), world.rank());
  RankGroup group{.active = world.split(place == ranks.end() ? -1 : 0, static_cast<int>(place - ranks.begin())),
                  .clock = {},
                  .limits = {}};
  if (!group.active.is_null()) group.clock.emplace(group.active);
  return rank_groups_.emplace(std::move(ranks), std::move(group)).first->second;
}

StepLimits& RankGroups::limits(RankGroup& group, const ScalePoint& p) {
  return group.limits.try_emplace({p.threads, p.precision}, session_, group.active, p.threads).first->second;
}

namespace {

/// Leaves out the blocks of disturbed turns, if enough others remain. The disturbed turns are the same for all points.
Measurement undisturbed(const Measurement& m, const MachineState& s) {
  Measurement out = m.without(s.disturbed);
  return out.blocks.size() < core::fewest_blocks ? m : out;
}

/// True if no step depends on the number of steps before it. Steps do depend on it if there is a schedule over steps,
/// if a codec keeps errors, or if updates are under way between steps.
bool steps_are_alike(const ScalePoint& p) {
  using enum dataparallel::CommunicationPattern;
  const auto communication = p.strategy->info().communication;
  return (communication == nothing || communication == all_reduce || communication == sharded_buckets) && !p.codec &&
         !p.loss_scale.adapts() && !p.injection.flip && !p.injection.omit && p.bucket_bytes != automatic_bucket;
}

/// Measures one point in turns. On ranks that take no part it only synchronises with the others.
class StepBenchmark {
 public:
  StepBenchmark(Session& s, RankGroups& rank_groups, const model::DataSplit& data, CurvePoint& p,
                const MeasureOptions& o, bool per_bucket)
      : session_(s), data_(data), rank_group_(rank_groups.of(p.point)), point_(p), per_bucket_(per_bucket) {
    take_turn([&] {
      build();
      check_ = training_->check_exchange();
      if (!check_.fault.empty()) return mark_wrong(check_.fault);
      progress_pause_ = training_->pause_progress();
      limits_ = &rank_groups.limits(rank_group_, p.point);
      demand_ = training_->demand();
      limits_->round(demand_);
      MeasureOptions own = o;
      own.cadence = p.point.cadence;  // points of one group differ in it: servers have no barrier between steps
      meter_.emplace(s, rank_group_.active, *rank_group_.clock, own, source());
      meter_->warm_up();
      rebuilder_.start();
    });
    share_status();
  }

  bool is_wrong() const { return point_.row.status == core::Status::wrong; }
  /// The least time that its blocks take; 0 on ranks that take no part.
  core::Seconds least_time() const { return meter_ ? meter_->least_time() : core::Seconds{0}; }
  /// The fewest blocks with which the point is complete; right on ranks that take part.
  std::size_t fewest_blocks() const {
    return meter_ && !meter_->result().blocks.empty()
               ? core::fewest_blocks_of(core::Seconds{meter_->result().blocks.back().step})
               : core::fewest_blocks;
  }

  /// Takes one turn. True: the point has enough samples. Collective over the world.
  bool round() {
    int stop = 0;
    take_turn([&] {
      limits_->round(demand_);
      if (may_build_anew()) build_anew();
      noise_.begin();
      stop = static_cast<int>(meter_->round());
      noise_.end();
      if (!meter_->result().fault.empty()) mark_wrong(meter_->result().fault);
    });
    share_status();
    return session_.world().broadcast_value(stop) != static_cast<int>(core::Stop::none);
  }

  /// Ends the training, and fills in the row if there are enough blocks. cut: the reason for the end if the samples
  /// were not enough. Collective over the world.
  void finish(const MachineState& state, core::Stop cut) {
    take_turn([&] { finish_active(state, cut); }, false);
    share_status();
  }

 private:
  void build() {
    rebuilder_.build([this] {
      training_.emplace(session_, rank_group_.active, data_, point_.point);
      if (times_buckets()) training_->keep_ready();
    });
  }

  bool may_build_anew() const {
    const bool on_host = session_.on_host();
    return on_host && steps_are_alike(point_.point) && !meter_->result().blocks.empty() &&
           rebuilder_.has_time(rank_group_.active);
  }

  void build_anew() {
    end_training();
    training_.reset();
    build();
    progress_pause_ = training_->pause_progress();
  }

  void end_training() {
    progress_pause_.reset();
    weights_agreed_ &= training_->weights_agree();
    totals_ += training_->finish();
  }

  bool active() const { return !rank_group_.active.is_null(); }
  bool times_buckets() const { return per_bucket_ && training_->exchanges_buckets(); }

  core::Spans bucket_names() const {
    const auto& model = training_->model();
    if (!training_->exchanges_buckets()) return {};
    return bucket_spans(model.tensors(), training_->buckets());
  }

  /// Between blocks no messages are handled, so that other points are measured undisturbed.
  StepMeter::Source source() {
    return {.prepare = [this] { training_->prepare(step_ % training_->steps_per_epoch()); },
            .step = [this] { training_->step(step_++ % training_->steps_per_epoch()); },
            .take_records =
                [this] {
                  auto records = training_->take_records();
                  sample_steps(records);
                  return records;
                },
            .begin_block = [this] { progress_pause_.reset(); },
            .end_block = [this] { progress_pause_ = training_->pause_progress(); },
            .verify_next = [this] { training_->verify_next(); },
            .take_fault = [this] { return training_->take_fault(); },
            .period = training_->period(),
            .lock_step = !training_->uses_ports(),
            .per_call = times_buckets(),
            .seed = session_.run_seed()};
  }

  void sample_steps(std::span<const dataparallel::StepRecord> records) {
    if (!training_->layout().trains()) return;
    for (const auto& r : records) {
      steps_.times.push_back(r.step.length());
      for (const auto& w : r.waits) steps_.waits[std::string(w.label)] += w.when.length();
    }
  }

  /// Calls `work` on the ranks that take part. The other ranks sleep until the turn is over.
  template <class Work>
  void take_turn(Work work, bool heeds_signals = true) {
    std::optional<runtime::Pause> sitting_out;
    if (active()) {
      work();
    } else {
      sitting_out.emplace(session_.activity());
    }
    session_.world().sleeping_barrier();
    if (heeds_signals) session_.stop_if_interrupted(session_.world());
  }

  /// Keeps the first reason: later ones may be its consequences.
  void mark_wrong(std::string reason) {
    if (is_wrong()) return;
    point_.row.status = core::Status::wrong;
    point_.row.reason = std::move(reason);
  }

  void finish_active(const MachineState& state, core::Stop cut) {
    const MachineNoise noise = noise_.over(rank_group_.active);
    const bool crowded =
        session_.ranks_per_node(point_.point.ranks, point_.point.placement.value_or(Placement::packed)) *
            (point_.point.threads + training_->helper_threads()) >
        session_.cores_per_node();
    end_training();
    if (meter_) {
      point_.measured = undisturbed(meter_->result(), state);
      if (point_.measured.stop == core::Stop::none) point_.measured.stop = cut;
      if (times_buckets())
        point_.buckets = bucket_times(training_->model().tensors(), training_->buckets(), point_.measured);
      fill_timeline(rank_group_.active, point_.measured, training_->model().layer_names(), bucket_names(),
                    point_.row.metrics);
      set_least_between_nodes();
      fill_row({.point = point_.point,
                .training = *training_,
                .measurement = point_.measured,
                .bound = limits_->bound(demand_),
                .machine_noise = noise,
                .totals = totals_,
                .steps = steps_,
                .oversubscribed = crowded,
                .used_blocks =
                    UsedBlocks::of(state, state.turns, meter_->result().blocks.size(), point_.measured.blocks.size()),
                .error = check_.error},
               point_.row);
      auto& m = point_.row.metrics;
      if (const auto least =
              least_exposed(training_->model().tensors(), m.number(core::Metric::limit_exchange_s), point_.measured))
        m[core::Metric::exposed_least_s] = *least;
    }
    if (!weights_agreed_) mark_wrong("ranks hold different weights after synchronous steps");
    meter_.reset();
    training_.reset();  // frees its memory for the points still measuring
  }

  /// Sets the least bytes between nodes to those sent, where the strategy fixes which ranks exchange messages.
  void set_least_between_nodes() {
    using enum dataparallel::CommunicationPattern;
    const auto pattern = point_.point.strategy->info().communication;
    const bool is_fixed = uses_ports(pattern) || pattern == messages || pattern == overlapped_messages;
    if (!is_fixed || !totals_.bytes_known || totals_.steps == 0) return;
    const auto placement = point_.point.placement.value_or(Placement::packed);
    const double nodes = session_.nodes(point_.point.ranks, placement), steps = static_cast<double>(totals_.steps);
    demand_.least_sent.by_busiest_node = static_cast<double>(totals_.bytes_between_nodes) / nodes / steps;
  }

  void share_status() {
    point_.row.status =
        static_cast<core::Status>(session_.world().broadcast_value(static_cast<int>(point_.row.status)));
  }

  Session& session_;
  const model::DataSplit& data_;
  RankGroup& rank_group_;
  CurvePoint& point_;
  bool per_bucket_;
  StepLimits* limits_ = nullptr;
  StepDemand demand_;
  ExchangeCheck check_;
  Rebuilder rebuilder_;
  std::optional<Training> training_;
  TrainingTotals totals_;  ///< the totals of all trainings that were built
  bool weights_agreed_ = true;
  Training::ProgressPause progress_pause_;
  std::optional<StepMeter> meter_;
  StepSamples steps_;
  NoiseSampler noise_{session_.gpu_gauge()};
  std::size_t step_ = 0;  ///< number of steps made, by all trainings that were built
};

/// The canary of all ranks that any point of the curve takes; null on other ranks.
Canary* canary_of(Session& s, RankGroups& rank_groups, const std::deque<CurvePoint>& points) {
  const auto& widest = std::max_element(points.begin(), points.end(), [](const auto& a, const auto& b) {
                         return a.point.ranks < b.point.ranks;
                       })->point;
  RankGroup& rank_group = rank_groups.of(widest);
  if (!rank_group.active.is_null() && !rank_group.canary)
    rank_group.canary = std::make_unique<Canary>(s, rank_group.active);
  return rank_group.canary.get();
}

}  // namespace

core::Seconds trial_step(Session& s, RankGroups& rank_groups, const model::DataSplit& data, const ScalePoint& p) {
  double seconds = 0;
  RankGroup& group = rank_groups.of(p);
  std::optional<runtime::Pause> sitting_out;
  if (group.active.is_null()) {
    sitting_out.emplace(s.activity());
  } else {
    Training training(s, group.active, data, p);
    for (const std::size_t step : {0, 1}) {
      training.prepare(step);
      const double begin = runtime::host_clock();
      training.step(step);
      training.take_records();  // waits for the step
      seconds = runtime::host_clock() - begin;
    }
    training.finish();
  }
  s.world().sleeping_barrier();
  s.stop_if_interrupted(s.world());
  return {seconds};
}

void measure_curve(Session& s, RankGroups& rank_groups, const model::DataSplit& data, std::deque<CurvePoint>& points,
                   const MeasureOptions& o, bool per_bucket,
                   const std::function<void(core::Seconds rest, core::Seconds point)>& foresee) {
  std::deque<StepBenchmark> benchmarks;
  const auto count = static_cast<double>(points.size());
  MachineMonitor monitor(canary_of(s, rank_groups, points), s.world(), {o.whole_budget.value * count});
  std::exception_ptr interrupted;
  try {
    double rest = 0, total_s = 0, cheapest = std::numeric_limits<double>::infinity();
    for (auto& p : points) {
      const double begin = runtime::host_clock();
      const double least_time = benchmarks.emplace_back(s, rank_groups, data, p, o, per_bucket).least_time().value;
      rest += least_time;
      const double point_s = runtime::host_clock() - begin + least_time;
      cheapest = std::min(cheapest, point_s);
      total_s += point_s;
      const double others_s = (count - static_cast<double>(benchmarks.size())) * cheapest;
      foresee({rest + others_s}, {(total_s + others_s) / count});
    }
    std::vector<Turn> turns;
    for (auto& benchmark : benchmarks)
      turns.emplace_back([&benchmark] { return benchmark.is_wrong() || benchmark.round(); });
    take_turns(s.run_seed() + points.front().point.batch_global, turns, [&](bool enough) {
      monitor.round();
      std::size_t least = core::fewest_blocks;  // rank 0, which decides, takes part in all points
      for (const auto& benchmark : benchmarks) least = std::min(least, benchmark.fewest_blocks());
      return monitor.is_over(least) || (enough && monitor.has_enough(o.rule.min_blocks));
    });
  } catch (const core::Interrupted&) {  // thrown on all ranks; what was measured is kept
    interrupted = std::current_exception();
    if (benchmarks.size() < points.size()) throw;
  }
  const MachineState state = monitor.state();
  for (auto& benchmark : benchmarks)
    benchmark.finish(state, interrupted ? core::Stop::interrupted : core::Stop::budget);
  if (interrupted) std::rethrow_exception(interrupted);
}

}  // namespace gradmeter::bench
