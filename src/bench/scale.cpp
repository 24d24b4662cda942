#include "bench/scale.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "bench/explain.hpp"
#include "bench/limits.hpp"
#include "core/error.hpp"
#include "core/format.hpp"
#include "model/data.hpp"
#include "runtime/noise.hpp"

namespace gradmeter::bench {
namespace {

using core::Factor;
using core::Metric;
using core::Point;
using core::Status;
using dataparallel::Decomposition;

constexpr double setup_seconds = 0.5;    // data, windows, check, limits: what a point costs before its first sample
constexpr double usual_point_budget = 5;
// Enough that a sweep's largest global batch is a real one, few enough to be drawn in a moment.
constexpr std::size_t least_samples = 4096;

std::size_t samples_needed(const std::vector<ScalePoint>& points) {
  std::size_t n = least_samples;
  for (const auto& p : points) n = std::max(n, p.batch_per_rank * static_cast<std::size_t>(p.ranks));
  return n;
}

TrainingConfig config_of(const ScalePoint& p, const ScaleOptions& o) {
  TrainingConfig c{.model = p.model,
                   .batch_per_rank = p.batch_per_rank,
                   .threads = p.threads,
                   .strategy = p.strategy,
                   .algorithm = p.algorithm,
                   .transport = p.transport.value_or(dataparallel::TransportKind::automatic),
                   .overlap = p.overlap.value_or(Overlap::none),
                   .optimizer = o.optimizer,
                   .seed = o.seed};
  if (p.algorithm && p.algorithm->is_vendor()) c.transport = dataparallel::TransportKind::mpi;
  if (p.bucket_bytes) c.bucket_bytes = *p.bucket_bytes;
  return c;
}

double seconds_per_point(const ScaleOptions& o, std::size_t points) {
  return o.time_budget ? o.time_budget->value / static_cast<double>(std::max<std::size_t>(1, points)) : usual_point_budget;
}

/// Rank counts share communicators, clock offsets and limits.
struct Circle {
  runtime::Communicator active;  ///< null on ranks that sit out
  runtime::ClockOffset offset;
  std::map<int, core::FlopsPerSecond> peak;                              ///< by threads
  std::map<dataparallel::TransportKind, core::BytesPerSecond> link;
};

class Sweep {
 public:
  Sweep(Session& s, const ScaleOptions& o, const std::map<std::string, Point>& finished, const ScaleListener& listener)
      : session_(s), options_(o), listener_(listener), points_(plan_scale(o.factors)), done_(finished) {}

  std::size_t run() {
    std::size_t wrong = 0, left = 0;
    for (const auto& p : points_) left += !done_.contains(to_factors(p).key());
    const double begin = runtime::host_clock();
    for (std::size_t i = 0; i < points_.size(); ++i) {
      const ScalePoint& p = points_[i];
      const std::string key = to_factors(p).key();
      if (const auto it = done_.find(key); it != done_.end()) {
        if (session_.is_root() && listener_.kept) listener_.kept(it->second);
        continue;
      }
      if (session_.is_root() && listener_.progress) listener_.progress(i, describe(p));
      point_budget_ = share(begin, left--);
      Point point = measure(p);
      wrong += point.status == Status::wrong;
      if (session_.is_root()) listener_.measured(point);
      done_[key] = std::move(point);
    }
    return wrong;
  }

 private:
  core::Factors to_factors(const ScalePoint& p) const {
    return bench::to_factors(p, session_, options_.factors.interconnect);
  }

  static std::string describe(const ScalePoint& p) {
    return fmt::format("{} batch {} {} ranks {}{}", p.model, p.batch_per_rank, p.ranks, p.strategy->name,
                       p.algorithm ? fmt::format(" {}", p.algorithm->name) : "");
  }

  double share(double begin, std::size_t left) const {
    if (!options_.time_budget) return usual_point_budget;
    const double rest = options_.time_budget->value - (runtime::host_clock() - begin);
    return session_.world().broadcast_value(std::max(rest, 0.0) / static_cast<double>(std::max<std::size_t>(1, left)));
  }

  /// Collective over the world: ranks beyond the point's sit out, asleep.
  Point measure(const ScalePoint& p) {
    Point point{.experiment = "scale", .status = Status::ok, .reason = {}, .factors = to_factors(p), .metrics = {}, .raw_times_s = {}};
    if (!p.impossible.empty()) {
      point.status = Status::skipped;
      point.reason = p.impossible;
      return point;
    }
    if (std::string shortage = memory_shortage(p); !shortage.empty()) {
      point.status = Status::skipped;
      point.reason = std::move(shortage);
      return point;
    }
    Circle& circle = circle_of(p.ranks);
    if (!circle.active.is_null()) {
      measure_active(p, circle, point);
      session_.world().patient_barrier();
    } else {
      const runtime::Pause sitting_out(session_.activity());
      session_.world().patient_barrier();
    }
    session_.stop_if_interrupted(session_.world());
    const int status = session_.world().broadcast_value(static_cast<int>(point.status));
    point.status = static_cast<Status>(status);
    return point;
  }

  std::string memory_shortage(const ScalePoint& p) {
    const auto m = model::make_model(p.model, data().train->features(), data().train->classes());
    const std::size_t each = Training::resident_bytes(config_of(p, options_), *m, p.ranks);
    const std::size_t needed = each * static_cast<std::size_t>(session_.ranks_per_node(p.ranks));
    if (needed <= session_.memory_per_node()) return {};
    return fmt::format("needs {} on a node that has {} free", core::to_text(core::Bytes{needed}),
                       core::to_text(core::Bytes{session_.memory_per_node()}));
  }

  Circle& circle_of(int ranks) {
    auto it = circles_.find(ranks);
    if (it != circles_.end()) return it->second;
    const auto& world = session_.world();
    Circle c{.active = world.split(world.rank() < ranks ? 0 : -1, world.rank()), .offset = {}, .peak = {}, .link = {}};
    if (!c.active.is_null()) c.offset = runtime::measure_clock_offset(c.active);
    return circles_.emplace(ranks, std::move(c)).first->second;
  }

  Limits limits(Circle& c, const ScalePoint& p) {
    const auto kind = config_of(p, options_).transport;
    if (!c.peak.contains(p.threads)) c.peak[p.threads] = measure_peak(session_, c.active, p.threads);
    if (p.algorithm && !c.link.contains(kind)) c.link[kind] = measure_link(session_, c.active, kind);
    return {c.peak[p.threads], p.algorithm ? c.link[kind] : core::BytesPerSecond{}};
  }

  const model::DataSplit& data() {
    if (!data_.train) {
      data_ = model::make_data({.directory = options_.data_directory,
                                .train_samples = samples_needed(points_),
                                .validation_samples = 1,
                                .seed = options_.seed});
    }
    return data_;
  }

  void measure_active(const ScalePoint& p, Circle& circle, Point& point) {
    const Limits limit = limits(circle, p);
    Training training(session_, circle.active, data(), config_of(p, options_));
    if (!training.exchange_is_right()) {
      point.status = Status::wrong;
      point.reason = fmt::format("the all-reduce {} gives wrong sums", p.algorithm->name);
      return;
    }
    runtime::NoiseGauge gauge;
    std::size_t step = 0;
    auto measurement = measure_steps(session_, circle.active, circle.offset, measure_options(p),
                                     [&]() -> const dataparallel::StepRecord& {
                                       training.step(step++ % training.steps_per_epoch());
                                       return training.record();
                                     });
    add_noise(circle.active, gauge.read(), point);
    if (p.strategy->communicates && !training.weights_equal()) {
      point.status = Status::wrong;
      point.reason = "ranks hold different weights after synchronous steps";
    }
    add_times(p, training, measurement, point);
    add_bytes(p, training, measurement, point);
    add_limit(p, training, limit, point);
    add_comparison(p, training, point);
  }

  MeasureOptions measure_options(const ScalePoint& p) const {
    MeasureOptions m{.cadence = p.cadence, .rule = options_.rule};
    // A fifth of the time at most goes into warm-up.
    m.warmup_budget = core::Seconds{std::clamp(point_budget_ * 0.2, 0.05, 1.0)};
    m.rule.budget = core::Seconds{std::max(0.0, point_budget_ - m.warmup_budget.value - setup_seconds)};
    return m;
  }

  bool oversubscribed(const ScalePoint& p, bool progress_thread) const {
    return session_.ranks_per_node(p.ranks) * (p.threads + progress_thread) > session_.cores_per_node();
  }

  void add_noise(const runtime::Communicator& c, const runtime::NoiseReading& mine, Point& point) const {
    // Own CPU time is the node's ranks' together; what the node did beyond that is foreign.
    const runtime::Communicator node = c.split_by_node();
    const double own = node.sum(mine.own_cpu_s), cores = static_cast<double>(std::max<std::size_t>(1, mine.cpus));
    point.metrics[Metric::noise_steal] = c.max(mine.steal_share);
    point.metrics[Metric::noise_foreign] = c.max(std::max(0.0, mine.busy_cpu_s - own) / (mine.elapsed_s * cores));
    point.metrics[Metric::noise_switches] = static_cast<std::int64_t>(c.sum(static_cast<double>(mine.involuntary_switches)));
    if (mine.frequency_hz > 0) point.metrics[Metric::frequency_hz] = mine.frequency_hz;
  }

  void add_times(const ScalePoint& p, const Training& t, const Measurement& m, Point& point) const {
    auto& metrics = point.metrics;
    point.raw_times_s = m.times();
    core::Summary time = core::summarise(point.raw_times_s);
    time.stop = m.stop;
    metrics[Metric::time_s] = time;
    metrics[Metric::compute_s] = m.median_of(&Decomposition::compute);
    metrics[Metric::samples_per_s] = static_cast<double>(p.batch_global) / time.median;
    metrics[Metric::flops_per_s] = t.model().step_flops(p.batch_per_rank) / time.median;
    metrics[Metric::warmup_s] = m.warmup_s;
    metrics[Metric::warmup_samples] = static_cast<std::int64_t>(m.warmup_steps);
    metrics[Metric::progress_threads] = static_cast<std::int64_t>(t.has_progress_thread());
    metrics[Metric::oversubscribed] = oversubscribed(p, t.has_progress_thread());
    if (!p.algorithm) return;
    metrics[Metric::comm_s] = m.median_of(&Decomposition::communication);
    metrics[Metric::exposed_union_s] = m.median_of(&Decomposition::exposed);
    metrics[Metric::overlap_s] = m.median_of(&Decomposition::overlap);
    if (m.skew_known) metrics[Metric::skew_s] = m.median_of(&Decomposition::skew);
  }

  static void add_bytes(const ScalePoint& p, const Training&, const Measurement& m, Point& point) {
    if (!p.algorithm || m.samples.empty() || !m.samples.front().bytes_known) return;
    const StepSample& s = m.samples.front();
    auto& metrics = point.metrics;
    metrics[Metric::bytes_sent_per_rank_max] = static_cast<std::int64_t>(s.bytes_sent_max);
    metrics[Metric::bytes_sent_total] = static_cast<std::int64_t>(s.bytes_sent_total);
    metrics[Metric::bytes_inter_node] = static_cast<std::int64_t>(s.bytes_between_nodes);
    metrics[Metric::bytes_predicted] = static_cast<std::int64_t>(s.bytes_due_total);
    const bool right = std::all_of(m.samples.begin(), m.samples.end(), [&](const StepSample& x) {
      return x.bytes_right && x.bytes_sent_total == s.bytes_sent_total;
    });
    if (right) return;
    point.status = Status::wrong;
    point.reason = "bytes sent differ from the schedule's messages";
  }

  static void add_limit(const ScalePoint& p, const Training& t, const Limits& limit, Point& point) {
    const auto bound = lower_bound(limit, t.model().step_flops(p.batch_per_rank), p.algorithm ? t.parameter_bytes() : 0, p.ranks);
    point.metrics[Metric::limit_s] = bound.seconds();
    point.metrics[Metric::peak_flops_per_s] = limit.peak.value;
    if (p.algorithm) point.metrics[Metric::link_bytes_per_s] = limit.link.value;
    point.metrics[Metric::roofline] = bound.seconds() / point.metrics.number(Metric::time_s);
  }

  const Point* find(ScalePoint p) const {
    const auto it = done_.find(to_factors(p).key());
    return it != done_.end() && it->second.status == Status::ok ? &it->second : nullptr;
  }

  /// The one-rank point of the same strategy: equal batch per rank (weak) or in all (strong).
  static ScalePoint baseline_of(ScalePoint p) {
    if (p.scaling == Scaling::strong) p.batch_per_rank = p.batch_global;
    p.batch_global = p.batch_per_rank;
    p.ranks = 1;
    p.scaling.reset();
    return without_exchange(p);
  }
  static ScalePoint control_of(ScalePoint p) {
    p.strategy = &dataparallel::find_strategy("independent");
    return without_exchange(p);
  }
  static ScalePoint without_exchange(ScalePoint p) {
    p.algorithm = nullptr;
    p.overlap.reset();
    p.bucket_bytes.reset();
    p.transport.reset();
    return p;
  }

  void add_comparison(const ScalePoint& p, const Training& t, Point& point) const {
    auto& metrics = point.metrics;
    const double step = metrics.number(Metric::time_s);
    const Point* control = p.strategy->communicates ? find(control_of(p)) : nullptr;
    const Point* one = p.ranks == 1 ? &point : find(baseline_of(p));
    if (control) {
      metrics[Metric::exposed_s] = step - control->metrics.number(Metric::time_s);
      metrics[Metric::interference_s] = metrics.number(Metric::compute_s) - control->metrics.number(Metric::compute_s);
    }
    if (!one) return;
    const double base = one->metrics.number(Metric::time_s);
    metrics[Metric::baseline_time_s] = base;
    metrics[Metric::baseline_ranks] = std::int64_t{1};
    metrics[Metric::baseline_batch] = one->factors[Factor::batch_per_rank];
    const double base_rate = one->metrics.number(Metric::samples_per_s);
    metrics[Metric::efficiency] = metrics.number(Metric::samples_per_s) / p.ranks / base_rate;
    // Strong scaling's fair share of one rank's step is 1/P of it.
    const double ideal = p.scaling == Scaling::strong ? base / p.ranks : base;
    Loss loss{.lost = step - ideal};
    loss.exposed = control ? std::max(0.0, metrics.number(Metric::exposed_s)) : 0.0;
    loss.contention = loss.lost - loss.exposed;
    if (const double skew = metrics.number(Metric::skew_s); std::isfinite(skew)) loss.skew = skew;
    metrics[Metric::limit] = binding_limit(loss, step, oversubscribed(p, t.has_progress_thread()));
  }

  Session& session_;
  const ScaleOptions& options_;
  const ScaleListener& listener_;
  std::vector<ScalePoint> points_;
  std::map<std::string, Point> done_;
  std::map<int, Circle> circles_;
  model::DataSplit data_;
  double point_budget_ = usual_point_budget;
};

}  // namespace

std::size_t run_scale(Session& s, const ScaleOptions& o, const std::map<std::string, Point>& finished,
                      const ScaleListener& listener) {
  return Sweep(s, o, finished, listener).run();
}

std::vector<PointEstimate> estimate_scale(const ScaleOptions& o) {
  const auto points = plan_scale(o.factors);
  std::vector<PointEstimate> out;
  const double budget = seconds_per_point(o, points.size());
  for (const auto& p : points) {
    // The built-in digits' shape; a data directory must hold images of the same.
    const auto m = model::make_model(p.model, 28 * 28, 10);
    out.push_back({p, p.impossible.empty() ? Training::resident_bytes(config_of(p, o), *m, p.ranks) : 0,
                   p.impossible.empty() ? budget : 0});
  }
  return out;
}

}  // namespace gradmeter::bench
