#include "bench/curve.hpp"

#include <algorithm>
#include <optional>

#include "core/error.hpp"
#include "core/format.hpp"

namespace gradmeter::bench {

RankCircle& RankCircles::of(const ScalePoint& p) {
  auto ranks = session_.ranks_for(p.ranks, p.placement.value_or(Placement::packed));
  const auto it = circles_.find(ranks);
  if (it != circles_.end()) return it->second;
  const auto& world = session_.world();
  const auto place = std::find(ranks.begin(), ranks.end(), world.rank());
  RankCircle c{.active = world.split(place == ranks.end() ? -1 : 0, static_cast<int>(place - ranks.begin())),
               .clock = {},
               .peak = {},
               .link = {}};
  if (!c.active.is_null()) c.clock.emplace(c.active);
  return circles_.emplace(std::move(ranks), std::move(c)).first->second;
}

Limits RankCircles::limits(RankCircle& c, int threads, const TrainingConfig& config) {
  if (!c.peak.contains(threads)) c.peak[threads] = measure_peak(session_, c.active, threads);
  if (!config.algorithm) return {c.peak[threads], {}};
  if (!c.link.contains(config.transport)) c.link[config.transport] = measure_link(session_, c.active, config.transport);
  return {c.peak[threads], c.link[config.transport]};
}

namespace {

/// One point while it takes its turns. On ranks that sit out it only keeps step with the others.
class Contestant {
 public:
  Contestant(Session& s, RankCircles& circles, const model::DataSplit& data, CurvePoint& p, const MeasureOptions& o)
      : session_(s), circle_(circles.of(p.point)), point_(p) {
    take_turn([&] {
      limits_ = circles.limits(circle_, p.point.threads, p.config);
      training_.emplace(s, circle_.active, data, p.config);
      check_ = training_->check_exchange();
      if (!check_.fault.empty()) return wrong(check_.fault);
      quiet_ = training_->quiet();
      meter_.emplace(s, circle_.active, *circle_.clock, o, source());
      meter_->warm_up();
    });
    share_status();
  }

  bool is_wrong() const { return point_.row.status == core::Status::wrong; }

  /// Collective over the world. True: it has enough.
  bool round() {
    int stop = 0;
    take_turn([&] {
      tally_.begin();
      stop = static_cast<int>(meter_->round());
      tally_.end();
      if (!meter_->result().fault.empty()) wrong(meter_->result().fault);
    });
    share_status();
    return session_.world().broadcast_value(stop) != static_cast<int>(core::Stop::none);
  }

  /// Collective over the world: ends the training and fills the row, if it has blocks enough.
  void finish() {
    take_turn([&] { finish_active(); }, false);
    share_status();
  }

 private:
  bool active() const { return !circle_.active.is_null(); }

  /// Between blocks nobody's mail is looked at, so that other points are measured undisturbed.
  StepMeter::Source source() {
    return {.prepare = [] {},
            .step = [this]() -> const dataparallel::StepRecord& {
              training_->step(step_++ % training_->steps_per_epoch());
              tally_steps();
              return training_->record();
            },
            .begin_block = [this] { quiet_.reset(); },
            .end_block = [this] { quiet_ = training_->quiet(); },
            .period = training_->period(),
            .lock_step = !training_->has_mail()};
  }

  void tally_steps() {
    if (!training_->layout().trains()) return;
    steps_.times.push_back(training_->record().step.length());
    for (const auto& w : training_->record().waits) steps_.waits[std::string(w.label)] += w.when.length();
  }

  /// Ranks that sit out sleep until the turn is over.
  template <class Work>
  void take_turn(Work work, bool heeds_signals = true) {
    std::optional<runtime::Pause> sitting_out;
    if (active()) {
      work();
    } else {
      sitting_out.emplace(session_.activity());
    }
    session_.world().patient_barrier();
    if (heeds_signals) session_.stop_if_interrupted(session_.world());
  }

  void wrong(std::string reason) {
    point_.row.status = core::Status::wrong;
    point_.row.reason = std::move(reason);
  }

  void finish_active() {
    const Noise noise = tally_.over(circle_.active);
    const bool crowded =
        session_.ranks_per_node(point_.point.ranks, point_.point.placement.value_or(Placement::packed)) *
            (point_.point.threads + training_->helper_threads()) >
        session_.cores_per_node();
    quiet_.reset();
    const bool agree = training_->weights_agree();
    const TrainingTotals totals = training_->finish();
    if (meter_) {
      point_.measured = meter_->result();
      if (point_.measured.stop == core::Stop::none) point_.measured.stop = core::Stop::interrupted;
      fill_row({.point = point_.point,
                .training = *training_,
                .measurement = point_.measured,
                .limits = limits_,
                .noise = noise,
                .totals = totals,
                .tally = steps_,
                .oversubscribed = crowded,
                .error = check_.error},
               point_.row);
    }
    if (!agree) wrong("ranks hold different weights after synchronous steps");
    meter_.reset();
    training_.reset();  // its memory is for those still measuring
  }

  void share_status() {
    point_.row.status =
        static_cast<core::Status>(session_.world().broadcast_value(static_cast<int>(point_.row.status)));
  }

  Session& session_;
  RankCircle& circle_;
  CurvePoint& point_;
  Limits limits_{};
  ExchangeCheck check_;
  std::optional<Training> training_;
  Training::Quiet quiet_;
  std::optional<StepMeter> meter_;
  StepTally steps_;
  NoiseTally tally_;
  std::size_t step_ = 0;
};

void take_turns(std::deque<Contestant>& contestants) {
  for (bool all_have_enough = false; !all_have_enough;) {
    all_have_enough = true;
    for (auto& c : contestants) {
      if (!c.is_wrong() && !c.round()) all_have_enough = false;
    }
  }
}

}  // namespace

void measure_curve(Session& s, RankCircles& circles, const model::DataSplit& data, std::deque<CurvePoint>& points,
                   const MeasureOptions& o) {
  std::deque<Contestant> contestants;
  std::exception_ptr interrupted;
  try {
    for (auto& p : points) contestants.emplace_back(s, circles, data, p, o);
    take_turns(contestants);
  } catch (const core::Interrupted&) {  // on all ranks: what was measured is kept
    interrupted = std::current_exception();
    if (contestants.size() < points.size()) throw;
  }
  for (auto& c : contestants) c.finish();
  if (interrupted) std::rethrow_exception(interrupted);
}

}  // namespace gradmeter::bench
