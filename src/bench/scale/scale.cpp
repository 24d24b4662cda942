// SPDX-License-Identifier: Apache-2.0
#include "bench/scale/scale.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include "bench/scale/curve.hpp"
#include "bench/scale/learning.hpp"
#include "bench/train/memory.hpp"
#include "bench/train/training.hpp"
#include "core/error.hpp"
#include "core/format.hpp"
#include "report/cells.hpp"
#include "runtime/host/host.hpp"

namespace gradmeter::bench {
namespace {

using core::Point;
using core::Status;

constexpr double setup_seconds = 0.5;  // [s] a point's data, windows, check and limits, before its first sample
constexpr core::Seconds usual_training_budget{5};
// The fewest samples that are loaded; to draw so many takes a moment. Larger global batches need more.
constexpr std::size_t least_samples = 4096;
// With --learn, the most samples to train on, and the number to evaluate on.
constexpr std::size_t most_samples = 60'000, validation_samples = 2'000;

std::size_t samples_needed(const std::vector<ScalePoint>& points) {
  std::size_t n = least_samples;
  for (const auto& p : points) n = std::max(n, p.batch_per_rank * static_cast<std::size_t>(p.ranks));
  return n;
}

class ScaleSweep final : public Experiment {
 public:
  ScaleSweep(Session& s, const ScaleOptions& o, const ScaleListener& listener)
      : session_(s), options_(o), listener_(listener), points_(plan_scale(o.factors)), rank_groups_(s) {}

  std::vector<SweepPoint*> plan(const SweepRows& rows) override {
    lacks_shm_ = std::ranges::any_of(points_, [&](const auto& p) {
      return p.impossible.empty() && shm_with_references(p) > session_.free_shm_per_node();
    });
    for (auto first = points_.begin(); first != points_.end();) {
      const auto last = std::find_if(first, points_.end(), [&](const auto& p) { return p.curve != first->curve; });
      plan_curve({first, last}, rows);
      first = last;
    }
    return planned_;
  }

  void measure(std::size_t index, SweepRows& rows) override {
    auto& group = groups_[index];
    const auto& first = group.front().point;
    rows.progress(fmt::format("{} batch {}: {} points in turn", first.model, first.batch_global, group.size()));
    if (!std::exchange(begun_, true)) {
      try_models();
      rows.foresee(least_from(index, {}), "the fewest steps of all points, by a trial step of each model");
    }
    bool is_interrupted = false;
    try {
      measure_curve(session_, rank_groups_, data(), group, measure_options(point_budget(group, rows)),
                    static_cast<bool>(listener_.buckets), [&](core::Seconds rest, core::Seconds point) {
                      rows.foresee({rest.value + least_from(index + 1, point).value}, budget_goes_to(group));
                    });
    } catch (const core::Interrupted&) {  // the sweep ends once the rows are out
      is_interrupted = true;
      cut(group);
    }
    for (auto& c : group) compare(c, group);
    if (options_.learn_samples > 0 && !is_interrupted) learn_all(group, rows);
    for (const auto& c : group) report_ranks(c, group);
    for (const auto& c : group) report_buckets(c);
    for (auto& c : group) c.measured = {};
  }

 private:
  core::Factors factors(const ScalePoint& p) const { return to_factors(p, session_, options_.factors.interconnect); }
  std::string key(const ScalePoint& p) const { return factors(p).key(); }

  /// The memory of a node that points take which exist at once [bytes].
  struct NodeNeeds {
    std::size_t memory = 0, shm = 0;
  };
  NodeNeeds needs_of(const std::deque<CurvePoint>& points) {
    NodeNeeds out;
    for (const auto& m : points)
      out.memory += node_bytes(m.point), out.shm += shm_bytes(m.point, facts(), map_of(m.point));
    return out;
  }

  void plan_curve(std::span<const ScalePoint> points, const SweepRows& rows) {
    groups_.emplace_back();
    NodeNeeds taken;  // by the points of the last group
    for (const auto& p : points) {
      auto& group = groups_.back();
      CurvePoint c = curve_point(p, rows);
      c.kept |= planned_keys_.contains(key(p));
      if (!c.kept) refuse_impossible(c);
      if (!c.is_due()) {
        list_point(apart_.emplace_back(std::move(c)));
        continue;
      }
      auto needed = missing_references(p, group, rows);
      needed.push_front(std::move(c));
      NodeNeeds more = needs_of(needed);
      const bool fits =
          taken.memory + more.memory <= memory_to_plan() && taken.shm + more.shm <= session_.free_shm_per_node();
      if (!fits && !group.empty()) {  // the remaining points form the next group
        taken = {};
        for (auto& r : missing_references(p, {}, rows)) {
          if (std::none_of(needed.begin(), needed.end(), [&](const auto& m) { return key(m.point) == key(r.point); })) {
            needed.push_back(std::move(r));
          }
        }
        more = needs_of(needed);
        close_group();
        groups_.emplace_back();
      }
      taken.memory += more.memory, taken.shm += more.shm;
      for (auto& m : needed) add(groups_.back(), std::move(m));
    }
    close_group();
  }

  /// Lists the asked-for points of the last group, which is then complete.
  void close_group() {
    for (auto& c : groups_.back()) {
      if (!c.reference) list_point(c);
    }
  }

  /// Appends the point to `planned_`.
  void list_point(CurvePoint& c) {
    c.group = groups_.size() - 1;
    planned_keys_.insert(c.row.factors.key());
    planned_.push_back(&c);
  }

  /// Adds a point that the group does not have yet. A point that is both asked for and a reference counts as asked for.
  void add(std::deque<CurvePoint>& group, CurvePoint c) {
    const auto same =
        std::find_if(group.begin(), group.end(), [&](const auto& g) { return key(g.point) == key(c.point); });
    if (same == group.end()) {
      group.push_back(std::move(c));
    } else {
      same->reference &= c.reference;
    }
  }

  /// The point with its row, before the measurement.
  CurvePoint curve_point(const ScalePoint& p, const SweepRows& rows) const {
    return {rows.point("scale", factors(p), 0), with_fitting_transport(p)};
  }

  /// The point; if it exchanges nothing, with private memory if /dev/shm has no room for the shared memory of all
  /// points.
  ScalePoint with_fitting_transport(ScalePoint p) const {
    if (lacks_shm_ && !p.applies.transport) p.transport = dataparallel::TransportKind::mpi;
    return p;
  }

  /// The points that a point is compared with.
  struct ReferencePoints {
    ScalePoint base, control, alone;
    std::optional<ScalePoint> node;
  };
  ReferencePoints references_of(const ScalePoint& p) const {
    ReferencePoints r{.base = baseline_of(p), .control = control_of(p), .alone = alone_of(p), .node = {}};
    const int full = session_.ranks_per_node(session_.world().size());
    if (p.ranks >= full && p.mesh.replica_ranks() == 1) r.node = full_node_of(p, session_.map(), full);
    return r;
  }

  /// The references of `p` that the group does not have yet. They are measured in turn with the points compared with
  /// them, even if an earlier run has their rows.
  std::deque<CurvePoint> missing_references(const ScalePoint& p, const std::deque<CurvePoint>& group,
                                            const SweepRows& rows) {
    std::deque<CurvePoint> out;
    const auto r = references_of(p);
    for (const ScalePoint* q : {&r.base, &r.control, r.node ? &*r.node : nullptr}) {
      const auto is_same = [&](const auto& c) { return key(c.point) == key(*q); };
      if (!q || key(*q) == key(p) || std::any_of(group.begin(), group.end(), is_same)) continue;
      if (std::any_of(out.begin(), out.end(), is_same) || !q->impossible.empty() || !unsupported(*q).empty()) continue;
      out.push_back(curve_point(*q, rows));
      out.back().reference = true;
    }
    return out;
  }

  void refuse_impossible(CurvePoint& c) {
    if (!c.point.impossible.empty()) return refuse(c.row, Status::unsupported, c.point.impossible);
    if (auto why = unsupported(c.point); !why.empty()) return refuse(c.row, Status::unsupported, std::move(why));
    const std::size_t bytes = node_bytes(c.point), free = memory_to_plan();
    if (bytes > free)
      return refuse(c.row, Status::skipped, short_of_memory(bytes, free) + "; " + what_would_fit(c.point, free));
    if (const std::size_t shm = shm_with_references(c.point); shm > session_.free_shm_per_node())
      refuse(c.row, Status::skipped, runtime::short_of_shm(shm, session_.free_shm_per_node()));
  }

  /// True where the point fits into memory when it is measured alone.
  bool fits(const ScalePoint& p) {
    return node_bytes(p) <= memory_to_plan() && shm_bytes(p, facts(), map_of(p)) <= session_.free_shm_per_node();
  }

  /// The shared memory of a point and its references, which exist at once [bytes].
  std::size_t shm_with_references(const ScalePoint& p) {
    const auto r = references_of(p);
    std::map<std::string, std::size_t> bytes_by_key;
    for (const ScalePoint* q : {&p, &r.base, &r.control, r.node ? &*r.node : nullptr}) {
      if (q && q->impossible.empty() && unsupported(*q).empty())
        bytes_by_key[key(*q)] = shm_bytes(with_fitting_transport(*q), facts(), map_of(*q));
    }
    return std::accumulate(bytes_by_key.begin(), bytes_by_key.end(), std::size_t{0},
                           [](auto sum, const auto& e) { return sum + e.second; });
  }

  /// Halves the batch until the point fits, and names that batch.
  std::string what_would_fit(ScalePoint p, std::size_t free) {
    while (p.batch_per_rank > 1) {
      p.batch_per_rank /= 2;
      if (node_bytes(p) <= free) return fmt::format("batch {} a worker would fit", p.batch_per_rank);
    }
    return "no batch fits: take fewer ranks a node, or a smaller model (layer tables: --shrink)";
  }

  std::string unsupported(const ScalePoint& p) {
    if (p.algorithm && p.algorithm->info().backend == allreduce::Backend::shared &&
        (p.transport == dataparallel::TransportKind::mpi || p.transport == dataparallel::TransportKind::cuda_mpi)) {
      return fmt::format("{} works on memory that all ranks share: it needs transport shm", p.algorithm->name);
    }
    return refusal(p, facts(), map_of(p));
  }

  NodeMap map_of(const ScalePoint& p) const {
    return session_.map_for(p.ranks, p.placement.value_or(Placement::packed));
  }

  /// The memory of a node that the plan may use [bytes]: four fifths of the free memory, since libraries and codecs
  /// keep more than is planned.
  std::size_t memory_to_plan() const { return session_.free_memory_per_node() / 5 * 4; }

  std::size_t node_bytes(const ScalePoint& p) {
    if (!p.impossible.empty() || !unsupported(p).empty()) return 0;
    return resident_bytes(p, facts(), p.ranks) * static_cast<std::size_t>(map_of(p).ranks_per_node());
  }

  /// After an interruption, points without an interval have no row, and nothing is compared with them.
  static void cut(std::deque<CurvePoint>& group) {
    for (auto& c : group) {
      if (c.measured.blocks.size() >= core::fewest_blocks) continue;
      c.cut = true;
      c.measured = {};
      refuse(c.row, Status::skipped, "interrupted");
    }
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
    const auto pointer_to = [](const std::optional<Reference>& x) { return x ? &*x : nullptr; };
    compare_row(c.point,
                {.base = pointer_to(base),
                 .control = pointer_to(control),
                 .one_node = pointer_to(node),
                 .one_rank = pointer_to(alone)},
                c.measured, c.row);
    if (const auto slow = c.row.metrics[core::Metric::slowest_rank].as<std::int64_t>()) {
      const auto ranks = session_.ranks_for(c.point.ranks, c.point.placement.value_or(Placement::packed));
      c.row.metrics[core::Metric::slowest_host] = session_.host_of(ranks.at(static_cast<std::size_t>(*slow)));
    }
  }

  /// The median over blocks of one rank's figure. There must be a block.
  static double median_of(const Measurement& m, std::vector<double> StepBlock::*figure, std::size_t rank) {
    std::vector<double> values;
    for (const auto& b : m.blocks) values.push_back((b.*figure).at(rank));
    return core::median(values);
  }

  void report_ranks(const CurvePoint& c, const std::deque<CurvePoint>& group) const {
    if (!session_.is_root() || !listener_.ranks || c.reference || c.point.ranks == 1 || c.measured.blocks.empty())
      return;
    const auto control = key(control_of(c.point));
    const auto at = std::find_if(group.begin(), group.end(), [&](const auto& g) { return key(g.point) == control; });
    const bool has_control = at != group.end() && !at->measured.blocks.empty();
    const auto ranks = session_.ranks_for(c.point.ranks, c.point.placement.value_or(Placement::packed));
    std::vector<RankTimes> times;
    for (std::size_t r = 0; r < ranks.size(); ++r) {
      times.push_back({.rank = static_cast<int>(r),
                       .host = session_.host_of(ranks[r]),
                       .compute = median_of(c.measured, &StepBlock::compute, r),
                       .control_compute =
                           has_control ? std::optional(median_of(at->measured, &StepBlock::compute, r)) : std::nullopt,
                       .wait = median_of(c.measured, &StepBlock::wait, r)});
    }
    listener_.ranks(c.row, times);
  }

  void report_buckets(const CurvePoint& c) const {
    const bool has = c.point.ranks > 1 && c.point.strategy->communicates() && !c.measured.blocks.empty();
    if (session_.is_root() && listener_.buckets && !c.reference && has) listener_.buckets(c.row, c.buckets);
  }

  /// Collective over the world. A signal ends the learning; the rows keep what was measured before.
  void learn_all(std::deque<CurvePoint>& group, const SweepRows& rows) {
    try {
      for (auto& c : group) {
        if (c.reference) continue;
        const auto control = control_of(c.point);
        const auto at =
            std::find_if(group.begin(), group.end(), [&](const auto& g) { return key(g.point) == key(control); });
        learn_point(c.point, at == group.end() || at->row.status != Status::ok ? nullptr : &at->row, c.row, rows);
      }
    } catch (const core::Interrupted&) {  // NOLINT(bugprone-empty-catch): the sweep ends once the rows are out
    }
  }

  /// Collective over the world. Only rank 0 is sure to have the row's metrics.
  /// Errors: Interrupted, on all ranks.
  void learn_point(const ScalePoint& p, const Point* control, Point& row, const SweepRows& rows) {
    const bool can = session_.world().broadcast_value(p.ranks > 1 && row.status == Status::ok && control != nullptr);
    if (!can) return;
    rows.progress(fmt::format("{} learns", p.strategy->name));
    const auto plan = session_.world().broadcast_value(
        plan_learning(options_.learn_samples, p.batch_global, control_of(p).batch_global,
                      row.metrics.number(core::Metric::time_s), control->metrics.number(core::Metric::time_s)));
    auto& rank_group = rank_groups_.of(p);
    std::optional<runtime::Pause> sitting_out;
    if (rank_group.active.is_null()) {
      sitting_out.emplace(session_.activity());
    } else {
      try {
        learn_active(p, rank_group.active, plan, row.metrics);
      } catch (const core::Interrupted&) {  // NOLINT(bugprone-empty-catch): all ranks stop below, those that wait too
      }
    }
    session_.world().sleeping_barrier();
    session_.stop_if_interrupted(session_.world());
  }

  /// Collective over the ranks that take part.
  void learn_active(const ScalePoint& p, const runtime::Communicator& active, const LearningPlan& plan,
                    core::Metrics& m) {
    const auto& rule = options_.learning_rule;
    const TrainingConfig& as_measured = p;
    const LearningConfig config = learning_config(as_measured, p.batch_global, rule);
    const Learned learned = learn(session_, active, data(), config, rule.warmup_epochs, plan);
    m[core::Metric::accuracy_at_samples] = learned.at_samples;
    m[core::Metric::learn_rule] = config.text;
    m[core::Metric::learn_samples] = static_cast<std::int64_t>(plan.steps_for_samples * p.batch_global);
    m[core::Metric::accuracy_at_time] = learned.at_time;
    m[core::Metric::learn_time_s] = static_cast<double>(plan.steps_for_time) * m.number(core::Metric::time_s);
  }

  /// The time for each point of a group. Points that are asked for share the time budget evenly. References in the
  /// group take part of that share, because each group of a curve measures them again.
  core::Seconds point_budget(const std::deque<CurvePoint>& group, const SweepRows& rows) const {
    const core::Seconds share = rows.time_for_point(usual_training_budget);
    if (!options_.time_budget) return share;
    const auto asked = static_cast<double>(std::ranges::count(group, false, &CurvePoint::reference));
    return core::Seconds{share.value * asked / static_cast<double>(group.size())};
  }

  /// Under a time budget, times a step of each model at the largest batch that fits, before anything is measured. The
  /// first group tells nothing about other models, and little about larger batches.
  void try_models() {
    if (!options_.time_budget || groups_.size() < 2) return;
    for (const auto& group : groups_) {
      for (const CurvePoint& c : group) {
        const ScalePoint alone = with_fitting_transport(baseline_of(c.point));
        if (!alone.impossible.empty() || !unsupported(alone).empty() || !fits(alone)) continue;
        auto& trial = trials_.try_emplace(work_of(c.point), alone).first->second;
        if (alone.batch_per_rank > trial.point.batch_per_rank) trial.point = alone;
      }
    }
    for (auto& [work, trial] : trials_) trial.step = trial_step(session_, rank_groups_, data(), trial.point);
  }

  /// Names the factors besides the batch on which a step's time depends.
  static std::string work_of(const ScalePoint& p) {
    return fmt::format("{} {} {}", p.model, name(p.precision), p.threads);
  }

  /// The least time that the points of this group and of all later groups take. A smaller batch takes at least the
  /// proportional part of a larger batch's time. point: the time that a point of the group before took; empty: unknown.
  core::Seconds least_from(std::size_t group, std::optional<core::Seconds> point) const {
    const auto part = [](const ScalePoint& of, const ScalePoint& known) {
      const auto batches = static_cast<double>(of.batch_per_rank) / static_cast<double>(known.batch_per_rank);
      return std::min(1.0, batches) / of.mesh.replica_ranks();
    };
    double sum = 0;
    for (std::size_t g = group; g < groups_.size(); ++g) {
      for (const CurvePoint& c : groups_[g]) {
        double least = 0;
        if (const auto* before = point ? &groups_[group - 1].front().point : nullptr;
            before && work_of(*before) == work_of(c.point))
          least = point->value * part(c.point, *before);
        if (const auto trial = trials_.find(work_of(c.point)); trial != trials_.end()) {
          const double step = trial->second.step.value * part(c.point, trial->second.point);
          const std::size_t steps = 1 + core::fewest_blocks_of(core::Seconds{step});  // one to warm up, one a block
          least = std::max(least, step * static_cast<double>(steps));
        }
        sum += least;
      }
    }
    return {sum};
  }

  static std::string budget_goes_to(const std::deque<CurvePoint>& group) {
    const auto& first = group.front().point;
    return fmt::format("each of {} of {} at batch {} is built, checked, and timed until it has an interval",
                       report::counted(group.size(), "point"), first.model, first.batch_per_rank);
  }

  MeasureOptions measure_options(core::Seconds point) const {
    const double budget = point.value;
    MeasureOptions m{.rule = options_.rule};
    // Warm-up takes a fifth of the time, but at least 0.05 s and at most 1 s.
    m.warmup_budget = core::Seconds{std::clamp(budget * 0.2, 0.05, 1.0)};
    m.rule.budget = core::Seconds{std::max(0.0, budget - m.warmup_budget.value - setup_seconds)};
    m.whole_budget = options_.time_budget ? point : m.rule.budget;
    return m;
  }

  std::size_t learning_samples() const { return std::min(options_.learn_samples, most_samples); }

  DataFacts facts() { return facts_of(data()); }

  const model::DataSplit& data() {
    if (!data_.train) {
      data_ = load_data(session_.world(), {.source = options_.data_directory,
                                           .train_samples = std::max(samples_needed(points_), learning_samples()),
                                           .validation_samples = options_.learn_samples > 0 ? validation_samples : 1,
                                           .seed = options_.factors.common.seed});
    }
    return data_;
  }

  Session& session_;
  const ScaleOptions& options_;
  const ScaleListener& listener_;
  std::vector<ScalePoint> points_;
  RankGroups rank_groups_;
  model::DataSplit data_;
  std::deque<std::deque<CurvePoint>> groups_;
  std::deque<CurvePoint> apart_;      ///< points that are kept or refused
  std::vector<SweepPoint*> planned_;  ///< the points of `groups_` and `apart_`, in the order of their rows
  struct Trial {
    ScalePoint point;
    core::Seconds step = {};
  };
  std::map<std::string, Trial> trials_;  ///< by `work_of`
  bool begun_ = false;
  bool lacks_shm_ = false;              ///< /dev/shm has no room for the shared memory of all points
  std::set<std::string> planned_keys_;  ///< keys of `planned_`: different cadences may lead to the same point
};

}  // namespace

std::size_t run_scale(Session& s, const ScaleOptions& o, const FinishedRows& finished, const ScaleListener& listener) {
  ScaleSweep sweep(s, o, listener);
  return run_sweep(sweep, peers_of(s, s.world()), finished, listener.rows, o.time_budget);
}

std::vector<Estimated<ScalePoint>> estimate_scale(const ScaleOptions& o) {
  const auto points = plan_scale(o.factors);
  std::vector<Estimated<ScalePoint>> out;
  const double budget = equal_share(o.time_budget, points.size(), usual_training_budget).value;
  for (const auto& p : points) {
    // The shape of the built-in digits; a data directory must hold images of the same shape.
    const DataFacts digits{.features = std::size_t{28} * 28, .classes = 10};
    out.push_back(
        {p, p.impossible.empty() ? resident_bytes(p, digits, p.ranks) : 0, p.impossible.empty() ? budget : 0});
  }
  return out;
}

}  // namespace gradmeter::bench
