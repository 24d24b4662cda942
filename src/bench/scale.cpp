#include "bench/scale.hpp"

#include <algorithm>

#include "bench/curve.hpp"
#include "bench/learning.hpp"
#include "core/format.hpp"
#include "model/data.hpp"

namespace gradmeter::bench {
namespace {

using core::Point;
using core::Status;

constexpr double setup_seconds = 0.5;  // data, windows, check, limits: what a point costs before its first sample
constexpr double usual_point_budget = 5;
// Enough that a sweep's largest global batch is a real one, few enough to be drawn in a moment.
constexpr std::size_t least_samples = 4096;
// To learn from, and to be judged by.
constexpr std::size_t most_samples = 60'000, validation_samples = 2'000;

std::size_t samples_needed(const std::vector<ScalePoint>& points) {
  std::size_t n = least_samples;
  for (const auto& p : points) n = std::max(n, p.batch_per_rank * static_cast<std::size_t>(p.ranks));
  return n;
}

TrainingConfig config_of(const ScalePoint& p, const ScaleOptions& o) {
  TrainingConfig c{.model = p.model,
                   .batch_per_rank = p.batch_per_rank,
                   .accumulate = p.accumulate,
                   .threads = p.threads,
                   .mesh = p.mesh,
                   .strategy = p.strategy,
                   .algorithm = p.algorithm,
                   .codec = p.codec,
                   .transport = p.transport.value_or(dataparallel::TransportKind::automatic),
                   .overlap = p.overlap.value_or(Overlap::none),
                   .optimizer = o.optimizer,
                   .seed = o.seed};
  if (p.algorithm && p.algorithm->is_vendor()) c.transport = dataparallel::TransportKind::mpi;
  if (p.bucket_bytes) c.bucket_bytes = *p.bucket_bytes;
  return c;
}

double seconds_per_point(const ScaleOptions& o, std::size_t points) {
  if (!o.time_budget) return usual_point_budget;
  return o.time_budget->value / static_cast<double>(std::max<std::size_t>(1, points));
}

class Sweep {
 public:
  Sweep(Session& s, const ScaleOptions& o, const std::map<std::string, Point>& finished, const ScaleListener& listener)
      : session_(s), options_(o), listener_(listener), points_(plan_scale(o.factors)), done_(finished), circles_(s) {}

  std::size_t run() {
    for (const auto& p : points_) left_ += !done_.contains(key(p));
    begin_ = runtime::host_clock();
    for (auto first = points_.begin(); first != points_.end();) {
      const auto last = std::find_if(first, points_.end(), [&](const auto& p) { return p.curve != first->curve; });
      run_curve({first, last});
      first = last;
    }
    return wrong_;
  }

 private:
  std::string key(const ScalePoint& p) const { return to_factors(p, session_, options_.factors.interconnect).key(); }

  void run_curve(std::span<const ScalePoint> points) {
    waiting_.clear();
    std::deque<CurvePoint> group;
    std::size_t memory = 0;
    for (const auto& p : points) {
      if (const auto it = done_.find(key(p)); it != done_.end()) {
        if (session_.is_root() && listener_.kept) listener_.kept(it->second);
        continue;
      }
      CurvePoint c{p, config_of(p, options_), {}};
      c.row.experiment = "scale";
      c.row.factors = to_factors(p, session_, options_.factors.interconnect);
      const std::size_t bytes = node_bytes(p);
      if (skip(c, bytes)) continue;
      if (memory + bytes > session_.memory_per_node()) {  // not all at once: the rest take turns after these
        measure(group);
        memory = 0;
      }
      memory += bytes;
      group.push_back(std::move(c));
    }
    measure(group);
    release(true);
  }

  bool skip(CurvePoint& c, std::size_t bytes) {
    if (const auto why = c.point.impossible.empty() ? unsupported(c.point) : ""; !why.empty()) {
      c.row.status = Status::unsupported;
      c.row.reason = why;
      emit(c.row);
      return true;
    }
    std::string reason = c.point.impossible;
    if (reason.empty() && bytes > session_.memory_per_node()) {
      reason = fmt::format("needs {} on a node that has {} free", core::to_text(core::Bytes{bytes}),
                           core::to_text(core::Bytes{session_.memory_per_node()}));
    }
    if (reason.empty()) return false;
    c.row.status = Status::skipped;
    c.row.reason = reason;
    emit(c.row);
    return true;
  }

  std::string unsupported(const ScalePoint& p) {
    if (p.algorithm && p.algorithm->info().carrier == allreduce::Carrier::shared &&
        p.transport == dataparallel::TransportKind::mpi) {
      return fmt::format("{} works on memory that all ranks share: it needs transport shm", p.algorithm->name);
    }
    return refusal(config_of(p, options_), facts(), map_of(p).node_of);
  }

  NodeMap map_of(const ScalePoint& p) const {
    return session_.map_for(p.ranks, p.placement.value_or(Placement::packed));
  }

  std::size_t node_bytes(const ScalePoint& p) {
    if (!p.impossible.empty() || !unsupported(p).empty()) return 0;
    return resident_bytes(config_of(p, options_), facts(), p.ranks) *
           static_cast<std::size_t>(map_of(p).ranks_per_node());
  }

  void measure(std::deque<CurvePoint>& group) {
    if (group.empty()) return;
    if (session_.is_root() && listener_.progress) {
      const auto& p = group.front().point;
      listener_.progress(fmt::format("{} batch {}: {} points in turn", p.model, p.batch_global, group.size()));
    }
    measure_curve(session_, circles_, data(), group, measure_options(group.front().point), [&](std::size_t i) {
      waiting_.push_back({group[i].point, group[i].row});
      release(false);
    });
    group.clear();
  }

  /// A row goes out when what it is compared with has gone before it, or when nothing more will come.
  void release(bool all) {
    for (bool moved = true; moved;) {
      moved = false;
      for (auto it = waiting_.begin(); it != waiting_.end(); ++it) {
        const bool is_base = it->first.ranks == 1, is_control = !it->first.strategy->communicates();
        const bool ready = (is_base || done_.contains(key(baseline_of(it->first)))) &&
                           (is_control || done_.contains(key(control_of(it->first))));
        if (!ready && !all) continue;
        compare(it->first, it->second);
        if (options_.learn_samples > 0) learn_point(it->first, it->second);
        emit(it->second);
        waiting_.erase(it);
        moved = true;
        break;
      }
    }
  }

  void compare(const ScalePoint& p, Point& row) const {
    if (row.status != Status::ok) return;
    const Point* baseline = p.ranks == 1 ? &row : find(baseline_of(p));
    compare_row(p, baseline, p.strategy->communicates() ? find(control_of(p)) : nullptr, row);
  }

  /// Collective over the world. Only rank 0 is sure to have the row's metrics.
  void learn_point(const ScalePoint& p, Point& row) {
    const Point* control = p.strategy->communicates() ? find(control_of(p)) : &row;
    const bool can = session_.world().broadcast_value(p.ranks > 1 && row.status == Status::ok && control != nullptr);
    if (!can) return;
    if (session_.is_root() && listener_.progress) listener_.progress(fmt::format("{} learns", p.strategy->name));
    const auto plan = session_.world().broadcast_value(
        plan_learning(options_.learn_samples, p.batch_global, control_of(p).batch_global,
                      row.metrics.number(core::Metric::time_s), control->metrics.number(core::Metric::time_s)));
    auto& circle = circles_.of(p.ranks);
    std::optional<runtime::Pause> sitting_out;
    if (circle.active.is_null()) {
      sitting_out.emplace(session_.activity());
    } else {
      const Learned learned = learn(session_, circle.active, data(), config_of(p, options_), plan);
      auto& m = row.metrics;
      m[core::Metric::accuracy_at_samples] = learned.at_samples;
      m[core::Metric::learn_samples] = static_cast<std::int64_t>(plan.at_samples * p.batch_global);
      m[core::Metric::accuracy_at_time] = learned.at_time;
      m[core::Metric::learn_time_s] = static_cast<double>(plan.at_time) * m.number(core::Metric::time_s);
    }
    session_.world().patient_barrier();
    session_.stop_if_interrupted(session_.world());
  }

  const Point* find(const ScalePoint& p) const {
    const auto it = done_.find(key(p));
    return it != done_.end() && it->second.status == Status::ok ? &it->second : nullptr;
  }

  void emit(const Point& row) {
    wrong_ += row.status == Status::wrong;
    --left_;
    if (session_.is_root()) listener_.measured(row);
    done_[row.factors.key()] = row;
  }

  MeasureOptions measure_options(const ScalePoint& p) const {
    double budget = usual_point_budget;
    if (options_.time_budget) {
      const double rest = options_.time_budget->value - (runtime::host_clock() - begin_);
      budget =
          session_.world().broadcast_value(std::max(rest, 0.0) / static_cast<double>(std::max<std::size_t>(1, left_)));
    }
    MeasureOptions m{.cadence = p.cadence, .rule = options_.rule};
    // A fifth of the time at most goes into warm-up.
    m.warmup_budget = core::Seconds{std::clamp(budget * 0.2, 0.05, 1.0)};
    m.rule.budget = core::Seconds{std::max(0.0, budget - m.warmup_budget.value - setup_seconds)};
    return m;
  }

  /// As large as there is use for.
  std::size_t learning_set() const { return std::min(options_.learn_samples, most_samples); }

  DataFacts facts() { return {data().train->features(), data().train->classes()}; }

  const model::DataSplit& data() {
    if (!data_.train) {
      data_ = model::make_data({.directory = options_.data_directory,
                                .train_samples = std::max(samples_needed(points_), learning_set()),
                                .validation_samples = options_.learn_samples > 0 ? validation_samples : 1,
                                .seed = options_.seed});
    }
    return data_;
  }

  Session& session_;
  const ScaleOptions& options_;
  const ScaleListener& listener_;
  std::vector<ScalePoint> points_;
  std::map<std::string, Point> done_;
  RankCircles circles_;
  model::DataSplit data_;
  std::deque<std::pair<ScalePoint, Point>> waiting_;  ///< measured, but not what they are compared with
  std::size_t left_ = 0, wrong_ = 0;
  double begin_ = 0;
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
    const DataFacts digits{.features = std::size_t{28} * 28, .classes = 10};
    out.push_back({p, p.impossible.empty() ? resident_bytes(config_of(p, o), digits, p.ranks) : 0,
                   p.impossible.empty() ? budget : 0});
  }
  return out;
}

}  // namespace gradmeter::bench
