#include "bench/scale/scale.hpp"

#include <algorithm>

#include "bench/scale/curve.hpp"
#include "bench/scale/learning.hpp"
#include "bench/train/node_data.hpp"
#include "core/error.hpp"
#include "core/format.hpp"

namespace gradmeter::bench {
namespace {

using core::Point;
using core::Status;

constexpr double setup_seconds = 0.5;  // data, windows, check, limits: what a point costs before its first sample
constexpr double usual_point_budget = 5;
// Enough for a sweep's largest global batch, few enough to be drawn in a moment.
constexpr std::size_t least_samples = 4096;
// Samples to train on, and to evaluate on.
constexpr std::size_t most_samples = 60'000, validation_samples = 2'000;

std::size_t samples_needed(const std::vector<ScalePoint>& points) {
  std::size_t n = least_samples;
  for (const auto& p : points) n = std::max(n, p.batch_per_rank * static_cast<std::size_t>(p.ranks));
  return n;
}

double seconds_per_point(const ScaleOptions& o, std::size_t points) {
  if (!o.time_budget) return usual_point_budget;
  return o.time_budget->value / static_cast<double>(std::max<std::size_t>(1, points));
}

class Sweep {
 public:
  Sweep(Session& s, const ScaleOptions& o, const FinishedRows& finished, const ScaleListener& listener)
      : session_(s),
        options_(o),
        listener_(listener),
        rows_(finished, listener.rows, s.is_root()),
        points_(plan_scale(o.factors)),
        done_(finished),
        rank_groups_(s) {}

  std::size_t run() {
    const auto is_new = [this](const ScalePoint& p) { return !done_.contains(key(p)); };
    rows_.start(static_cast<std::size_t>(std::ranges::count_if(points_, is_new)), options_.time_budget);
    for (auto first = points_.begin(); first != points_.end();) {
      const auto last = std::find_if(first, points_.end(), [&](const auto& p) { return p.curve != first->curve; });
      run_curve({first, last});
      first = last;
    }
    return rows_.wrong();
  }

 private:
  core::Factors factors(const ScalePoint& p) const { return to_factors(p, session_, options_.factors.interconnect); }
  std::string key(const ScalePoint& p) const { return factors(p).key(); }

  void run_curve(std::span<const ScalePoint> points) {
    std::deque<CurvePoint> group;
    std::size_t memory = 0;
    for (const auto& p : points) {
      if (const auto it = done_.find(key(p)); it != done_.end()) {
        rows_.show(it->second);
        continue;
      }
      CurvePoint c = made(p);
      if (skip(c, node_bytes(p))) continue;
      auto more = missing_references(p, group);
      more.push_front(std::move(c));
      std::size_t bytes = 0;
      for (const auto& m : more) bytes += node_bytes(m.point);
      if (memory + bytes > session_.memory_per_node() && !group.empty()) {  // the rest take turns after these
        measure(group);
        memory = 0;
        for (auto& r : missing_references(p, group)) {
          if (std::none_of(more.begin(), more.end(), [&](const auto& m) { return key(m.point) == key(r.point); })) {
            more.push_back(std::move(r));
          }
        }
      }
      memory += bytes;
      for (auto& m : more) add(group, std::move(m));
    }
    measure(group);
  }

  /// A point that is asked for replaces the reference that it was until now.
  void add(std::deque<CurvePoint>& group, CurvePoint c) {
    const auto same =
        std::find_if(group.begin(), group.end(), [&](const auto& g) { return key(g.point) == key(c.point); });
    if (same == group.end()) {
      group.push_back(std::move(c));
    } else {
      same->reference &= c.reference;
    }
  }

  CurvePoint made(const ScalePoint& p) const {
    CurvePoint c{.point = p, .row = {}, .measured = {}};
    c.row.experiment = "scale";
    c.row.factors = factors(p);
    return c;
  }

  /// The points that a point is compared with.
  struct ReferencePoints {
    ScalePoint base, control, alone;
    std::optional<ScalePoint> node;
  };
  ReferencePoints references_of(const ScalePoint& p) const {
    ReferencePoints r{.base = baseline_of(p), .control = control_of(p), .alone = alone_of(p), .node = {}};
    const int full = session_.ranks_per_node(session_.world().size());
    if (p.ranks >= full && p.mesh.replica_ranks() == 1) r.node = node_of(p, session_.map(), full);
    return r;
  }

  /// References are measured in turn with the points compared with them, even if an earlier run has their rows.
  std::deque<CurvePoint> missing_references(const ScalePoint& p, const std::deque<CurvePoint>& group) {
    std::deque<CurvePoint> out;
    const auto r = references_of(p);
    for (const ScalePoint* q : {&r.base, &r.control, r.node ? &*r.node : nullptr}) {
      const auto is_it = [&](const auto& c) { return key(c.point) == key(*q); };
      if (!q || key(*q) == key(p) || std::any_of(group.begin(), group.end(), is_it)) continue;
      if (std::any_of(out.begin(), out.end(), is_it) || !q->impossible.empty() || !unsupported(*q).empty()) continue;
      out.push_back(made(*q));
      out.back().reference = true;
    }
    return out;
  }

  bool skip(CurvePoint& c, std::size_t bytes) {
    if (const auto why = c.point.impossible.empty() ? unsupported(c.point) : ""; !why.empty()) {
      refuse(c.row, Status::unsupported, why);
      emit(c.row);
      return true;
    }
    std::string reason = c.point.impossible;
    if (reason.empty() && bytes > session_.memory_per_node()) {
      reason = short_of_memory(bytes, session_.memory_per_node());
    }
    if (reason.empty()) return false;
    refuse(c.row, Status::skipped, reason);
    emit(c.row);
    return true;
  }

  std::string unsupported(const ScalePoint& p) {
    if (p.algorithm && p.algorithm->info().backend == allreduce::Backend::shared &&
        p.transport == dataparallel::TransportKind::mpi) {
      return fmt::format("{} works on memory that all ranks share: it needs transport shm", p.algorithm->name);
    }
    return refusal(p, facts(), map_of(p));
  }

  NodeMap map_of(const ScalePoint& p) const {
    return session_.map_for(p.ranks, p.placement.value_or(Placement::packed));
  }

  std::size_t node_bytes(const ScalePoint& p) {
    if (!p.impossible.empty() || !unsupported(p).empty()) return 0;
    return resident_bytes(p, facts(), p.ranks) * static_cast<std::size_t>(map_of(p).ranks_per_node());
  }

  void measure(std::deque<CurvePoint>& group) {
    if (group.empty()) return;
    const auto& first = group.front().point;
    rows_.progress(fmt::format("{} batch {}: {} points in turn", first.model, first.batch_global, group.size()));
    std::exception_ptr interrupted;
    try {
      measure_curve(session_, rank_groups_, data(), group, measure_options(group.front().point));
    } catch (const core::Interrupted&) {
      interrupted = std::current_exception();
      std::erase_if(group, [](const CurvePoint& c) { return c.measured.blocks.size() < core::fewest_blocks; });
    }
    for (auto& c : group) compare(c, group);
    if (options_.learn_samples > 0 && !interrupted) learn_all(group);
    for (auto& c : group) {
      if (c.reference) continue;
      emit(c.row);
      report_ranks(c, group);
    }
    group.clear();
    if (interrupted) std::rethrow_exception(interrupted);
  }

  void compare(CurvePoint& c, const std::deque<CurvePoint>& group) const {
    if (c.row.status != Status::ok || !session_.is_root()) return;
    const auto find = [&](const ScalePoint& p) -> std::optional<Reference> {
      for (const auto& g : group) {
        if (g.row.status == Status::ok && key(g.point) == key(p)) return Reference{g.row, g.measured};
      }
      return std::nullopt;
    };
    const auto r = references_of(c.point);
    const auto base = find(r.base), control = find(r.control), alone = find(r.alone);
    const auto node = r.node ? find(*r.node) : std::nullopt;
    const auto given = [](const std::optional<Reference>& x) { return x ? &*x : nullptr; };
    compare_row(c.point, {.base = given(base), .control = given(control), .node = given(node), .alone = given(alone)},
                c.measured, c.row);
    if (const auto slow = std::get_if<std::int64_t>(&c.row.metrics[core::Metric::slowest_rank])) {
      const auto ranks = session_.ranks_for(c.point.ranks, c.point.placement.value_or(Placement::packed));
      c.row.metrics[core::Metric::slowest_host] = session_.host_of(ranks.at(static_cast<std::size_t>(*slow)));
    }
  }

  /// One figure of every rank: the median over blocks.
  static double median_of(const Measurement& m, std::vector<double> StepBlock::*figure, std::size_t rank) {
    std::vector<double> values;
    for (const auto& b : m.blocks) values.push_back((b.*figure).at(rank));
    return values.empty() ? 0 : core::median(values);
  }

  void report_ranks(const CurvePoint& c, const std::deque<CurvePoint>& group) const {
    if (!session_.is_root() || !listener_.ranks || c.point.ranks == 1 || c.measured.blocks.empty()) return;
    const auto control = key(control_of(c.point));
    const auto at = std::find_if(group.begin(), group.end(), [&](const auto& g) { return key(g.point) == control; });
    const auto ranks = session_.ranks_for(c.point.ranks, c.point.placement.value_or(Placement::packed));
    std::vector<RankTimes> times;
    for (std::size_t r = 0; r < ranks.size(); ++r) {
      times.push_back({.rank = static_cast<int>(r),
                       .host = session_.host_of(ranks[r]),
                       .compute = median_of(c.measured, &StepBlock::compute, r),
                       .control_compute = at == group.end() ? 0 : median_of(at->measured, &StepBlock::compute, r),
                       .wait = median_of(c.measured, &StepBlock::wait, r)});
    }
    listener_.ranks(c.row, times);
  }

  void learn_all(std::deque<CurvePoint>& group) {
    for (auto& c : group) {
      if (c.reference) continue;
      const auto control = control_of(c.point);
      const auto at =
          std::find_if(group.begin(), group.end(), [&](const auto& g) { return key(g.point) == key(control); });
      learn_point(c.point, at == group.end() || at->row.status != Status::ok ? nullptr : &at->row, c.row);
    }
  }

  /// Collective over the world. Only rank 0 is sure to have the row's metrics.
  void learn_point(const ScalePoint& p, const Point* control, Point& row) {
    const bool can = session_.world().broadcast_value(p.ranks > 1 && row.status == Status::ok && control != nullptr);
    if (!can) return;
    rows_.progress(fmt::format("{} learns", p.strategy->name));
    const auto plan = session_.world().broadcast_value(
        plan_learning(options_.learn_samples, p.batch_global, control_of(p).batch_global,
                      row.metrics.number(core::Metric::time_s), control->metrics.number(core::Metric::time_s)));
    auto& rank_group = rank_groups_.of(p);
    std::optional<runtime::Pause> sitting_out;
    if (rank_group.active.is_null()) {
      sitting_out.emplace(session_.activity());
    } else {
      const Learned learned = learn(session_, rank_group.active, data(), p, plan);
      auto& m = row.metrics;
      m[core::Metric::accuracy_at_samples] = learned.at_samples;
      m[core::Metric::learn_samples] = static_cast<std::int64_t>(plan.at_samples * p.batch_global);
      m[core::Metric::accuracy_at_time] = learned.at_time;
      m[core::Metric::learn_time_s] = static_cast<double>(plan.at_time) * m.number(core::Metric::time_s);
    }
    session_.world().sleeping_barrier();
    session_.stop_if_interrupted(session_.world());
  }

  void emit(const Point& row) {
    rows_.emit(row);
    done_[row.factors.key()] = row;
  }

  MeasureOptions measure_options(const ScalePoint& p) const {
    const double budget = session_.world().broadcast_value(rows_.share(core::Seconds{usual_point_budget}).value);
    MeasureOptions m{.cadence = p.cadence, .rule = options_.rule};
    // A fifth of the time at most goes into warm-up.
    m.warmup_budget = core::Seconds{std::clamp(budget * 0.2, 0.05, 1.0)};
    m.rule.budget = core::Seconds{std::max(0.0, budget - m.warmup_budget.value - setup_seconds)};
    return m;
  }

  /// No larger than is of use.
  std::size_t learning_set() const { return std::min(options_.learn_samples, most_samples); }

  DataFacts facts() { return {data().train->features(), data().train->classes()}; }

  const model::DataSplit& data() {
    if (!data_.train) {
      data_ = load_data(session_.world(), {.directory = options_.data_directory,
                                           .train_samples = std::max(samples_needed(points_), learning_set()),
                                           .validation_samples = options_.learn_samples > 0 ? validation_samples : 1,
                                           .seed = options_.factors.common.seed});
    }
    return data_;
  }

  Session& session_;
  const ScaleOptions& options_;
  const ScaleListener& listener_;
  SweepRows rows_;
  std::vector<ScalePoint> points_;
  FinishedRows done_;  ///< with what this run has measured
  RankGroups rank_groups_;
  model::DataSplit data_;
};

}  // namespace

std::size_t run_scale(Session& s, const ScaleOptions& o, const FinishedRows& finished, const ScaleListener& listener) {
  return Sweep(s, o, finished, listener).run();
}

std::vector<PointEstimate> estimate_scale(const ScaleOptions& o) {
  const auto points = plan_scale(o.factors);
  std::vector<PointEstimate> out;
  const double budget = seconds_per_point(o, points.size());
  for (const auto& p : points) {
    // The built-in digits' shape; a data directory must hold images of the same.
    const DataFacts digits{.features = std::size_t{28} * 28, .classes = 10};
    out.push_back(
        {p, p.impossible.empty() ? resident_bytes(p, digits, p.ranks) : 0, p.impossible.empty() ? budget : 0});
  }
  return out;
}

}  // namespace gradmeter::bench
