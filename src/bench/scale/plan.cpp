// SPDX-License-Identifier: Apache-2.0
#include "bench/scale/plan.hpp"

#include <algorithm>
#include <set>

#include "bench/train/flags.hpp"
#include "core/error.hpp"
#include "core/format.hpp"

namespace gradmeter::bench {
namespace {

using dataparallel::StrategyPtr;

std::vector<int> with_one_rank(std::vector<int> ranks) {
  ranks.push_back(1);
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  return ranks;
}

std::vector<StrategyPtr> with_control(const std::vector<StrategyPtr>& asked) {
  std::vector<StrategyPtr> out{dataparallel::find_strategy("independent")};
  for (const auto& s : asked) {
    if (s->name != out.front()->name) out.push_back(s);
  }
  return out;
}

/// Combines every point with every value.
template <class T, class Set>
std::vector<ScalePoint> cross(const std::vector<ScalePoint>& points, const std::vector<T>& values, Set set) {
  std::vector<ScalePoint> out;
  for (const auto& p : points) {
    for (const T& v : values) set(out.emplace_back(p), v);
  }
  return out;
}

/// True where the placement changes which ranks are taken.
bool placement_matters(const NodeMap& map, int ranks) {
  if (ranks == 1 || ranks >= map.ranks()) return false;
  return map.ranks_for(ranks, Placement::packed) != map.ranks_for(ranks, Placement::spread);
}

/// Sets the strategy and its usual step size, with which the weights stay finite, as checks require.
void set_strategy(ScalePoint& p, StrategyPtr s) {
  p.step_size = s->info().step_size;
  p.strategy = std::move(s);
}

ScalePoint without_exchange(ScalePoint p) {
  const TrainingConfig usual;
  p.algorithm = nullptr;
  p.codec = nullptr;
  p.overlap = Overlap::none;
  p.transport = usual.transport;
  p.applies = {};
  set_usual_exchange(p);
  return p;
}

/// Sets both batches: weak scaling keeps the batch of a worker, strong scaling that of all workers together. Sets
/// `impossible` if the ranks do not fit the mesh, or do not divide the batch.
ScalePoint with_batches(ScalePoint p) {
  try {
    const auto workers = static_cast<std::size_t>(layout_of(p, p.ranks, 0).workers);
    if (p.scaling == Scaling::strong) {
      if (p.batch_global % workers != 0) {
        p.impossible = fmt::format("batch {} does not divide by {} {}", p.batch_global, workers,
                                   workers == static_cast<std::size_t>(p.ranks) ? "ranks" : "workers");
      }
      p.batch_per_rank = std::max<std::size_t>(1, p.batch_global / workers);
    } else {
      p.batch_global = p.batch_per_rank * workers;
    }
  } catch (const core::UsageError& e) {
    p.impossible = e.what();
  }
  return p;
}

/// The point with strategy `independent`, at the cadence that was asked for and without an exchange.
ScalePoint independent(ScalePoint p) {
  p.cadence = p.control_cadence;
  set_strategy(p, dataparallel::find_strategy("independent"));
  return without_exchange(p);
}

class Planner {
 public:
  explicit Planner(const ScaleFactors& f)
      : factors_(f), ranks_(with_one_rank(f.ranks)), strategies_(with_control(f.strategies)) {}

  std::vector<ScalePoint> plan() {
    std::vector<ScalePoint> curves{without_exchange({factors_.common})};
    curves = cross(curves, factors_.models, [](auto& p, const auto& v) { p.model = v; });
    curves = cross(curves, factors_.batches, [](auto& p, auto v) { p.batch_per_rank = p.batch_global = v; });
    curves = with_settings(curves, nullptr);
    curves = cross(curves, factors_.threads, [](auto& p, auto v) { p.threads = v; });
    curves = cross(curves, factors_.cadences, [](auto& p, auto v) { p.cadence = p.control_cadence = v; });
    for (auto& base : curves) {
      base.curve = curve_count_++;
      curve(base);
    }
    return std::move(points_);
  }

 private:
  void curve(const ScalePoint& base) {
    for (const int ranks : ranks_) {
      std::vector<ScalePoint> points{base};
      points.front().ranks = ranks;
      if (placement_matters(factors_.map, ranks))
        points = cross(points, factors_.placements, [](auto& p, auto v) { p.placement = v; });
      if (ranks > 1) {
        points = cross(points, factors_.meshes, [](auto& p, const auto& v) { p.mesh = v; });
        points = cross(points, factors_.scalings, [](auto& p, auto v) { p.scaling = v; });
      }
      for (const auto& p : points) each_strategy(p);
    }
  }

  void each_strategy(ScalePoint p) {
    std::set<std::string> seen;  // names; on one rank two strategies may become the same
    for (const auto& s : strategies_) {
      set_strategy(p, p.ranks == 1 ? s->for_one_rank() : s);
      if (!seen.insert(p.strategy->name).second) continue;
      const ScalePoint settled = with_batches(p);
      const auto exchanges = each_exchange(settled);
      points_.insert(points_.end(), exchanges.begin(), exchanges.end());
    }
  }

  std::vector<ScalePoint> each_exchange(ScalePoint p) const {
    if (!has_layout(p)) return {p};
    if (uses_ports(p.strategy->info().communication))
      p.cadence = runtime::Cadence::none;  // a barrier would synchronise the workers' steps
    if (!exchanges(p, layout_of(p, p.ranks, 0))) return {p};
    const ExchangeFactors applies = p.applies = exchange_factors(*p.strategy);
    std::vector<ScalePoint> points{p};
    if (applies.algorithm) points = cross(points, factors_.algorithms, [](auto& q, const auto& v) { q.algorithm = v; });
    if (applies.codec)
      points = cross(points, factors_.codecs, [](auto& q, const auto& v) { q.codec = q.gradient_codec(v); });
    if (applies.overlap) points = cross(points, overlaps_of(p), [](auto& q, auto v) { q.overlap = v; });
    return with_transports(with_settings(points, &applies));
  }

  /// Combines the points with further factors: those of the exchange that apply by `exchange`, or, if that is null,
  /// those of every training.
  std::vector<ScalePoint> with_settings(std::vector<ScalePoint> points, const ExchangeFactors* exchange) const {
    for (const auto& factor : factors_.settings) {
      const bool wanted =
          exchange ? factor.exchange_factor && exchange->*factor.exchange_factor : !factor.exchange_factor;
      if (wanted) points = cross(points, factor.values, [](auto& p, const auto& set) { set(p); });
    }
    return points;
  }

  /// The values of --overlap, each once, with automatic overlap resolved. Ranks beyond a known map count as one node.
  std::vector<Overlap> overlaps_of(const ScalePoint& p) const {
    const bool is_on_map = p.ranks <= factors_.map.ranks();
    const auto placement = p.placement.value_or(Placement::packed);
    const int ranks_per_node =
        is_on_map ? factors_.map.of(factors_.map.ranks_for(p.ranks, placement)).ranks_per_node() : p.ranks;
    std::vector<Overlap> out;
    for (const Overlap asked : factors_.overlaps) {
      const auto overlap = resolve(asked, p.strategy->info().communication,
                                   {p.threads, ranks_per_node, factors_.cores_per_node, p.ranks});
      if (std::find(out.begin(), out.end(), overlap) == out.end()) out.push_back(overlap);
    }
    return out;
  }

  std::vector<ScalePoint> with_transports(const std::vector<ScalePoint>& points) const {
    std::vector<ScalePoint> out;
    for (const auto& p : points) {
      // An algorithm that moves its bytes itself uses none of our transports.
      if (p.algorithm && !p.algorithm->uses_transport()) {
        auto& q = out.emplace_back(p);
        q.transport = dataparallel::TransportKind::mpi;
        q.applies.transport = false;
        continue;
      }
      const auto more = cross({p}, factors_.transports, [](auto& q, auto v) { q.transport = v; });
      out.insert(out.end(), more.begin(), more.end());
    }
    return out;
  }

  /// True if the number of ranks fits the point's mesh and strategy.
  static bool has_layout(const ScalePoint& p) {
    try {
      (void)layout_of(p, p.ranks, 0);
      return true;
    } catch (const core::UsageError&) {
      return false;
    }
  }

  const ScaleFactors& factors_;
  std::vector<int> ranks_;
  std::vector<StrategyPtr> strategies_;
  std::vector<ScalePoint> points_;
  std::size_t curve_count_ = 0;
};

std::string_view transport_name(dataparallel::TransportKind t, bool one_node) {
  using enum dataparallel::TransportKind;
  return runtime::name(t == automatic ? (one_node ? shm : hybrid) : t);
}

}  // namespace

std::string_view name(Scaling s) { return s == Scaling::weak ? "weak" : "strong"; }

ScalePoint alone_of(ScalePoint p) {
  if (p.scaling == Scaling::strong) p.batch_per_rank = p.batch_global;
  p.batch_global = p.batch_per_rank;
  p.ranks = 1;
  p.placement.reset();
  p.scaling.reset();
  p.mesh = {};
  set_strategy(p, p.strategy->for_one_rank());
  return without_exchange(p);
}

ScalePoint baseline_of(ScalePoint p) { return control_of(alone_of(std::move(p))); }

ScalePoint full_node_of(ScalePoint p, const NodeMap& world, int ranks_per_node) {
  if (ranks_per_node == 1) return baseline_of(std::move(p));
  p.ranks = ranks_per_node;
  p.placement.reset();
  if (placement_matters(world, ranks_per_node)) p.placement = Placement::packed;
  return with_batches(independent(std::move(p)));
}

ScalePoint control_of(ScalePoint p) {
  p = independent(std::move(p));
  if (!p.impossible.empty()) return p;
  // Ranks that serve also train under the control. So in strong scaling the control's ranks have the batch of the
  // point's workers, not a share of the global batch: their compute times are compared.
  p.batch_global = layout_of(p, p.ranks, 0).batch_global(p);
  return p;
}

std::vector<ScalePoint> plan_scale(const ScaleFactors& f) { return Planner(f).plan(); }

core::Factors to_factors(const ScalePoint& p, const Session& session, const std::string& interconnect) {
  using core::Factor;
  core::Factors f;
  const NodeMap map = session.map_for(p.ranks, p.placement.value_or(Placement::packed));
  fill_ranks(map, f);
  fill_training(p, p.applies, f);
  if (p.mesh.replica_ranks() > 1) f[Factor::mesh] = (p.impossible.empty() ? p.mesh.complete(p.ranks) : p.mesh).text();
  f[Factor::batch_global] = static_cast<std::int64_t>(p.batch_global);
  if (p.applies.transport) f[Factor::transport] = std::string(transport_name(p.transport, map.nodes() == 1));
  if (p.placement) f[Factor::placement] = std::string(name(*p.placement));
  if (!interconnect.empty()) f[Factor::interconnect] = interconnect;
  // A barrier before each step would synchronise the steps of workers that may run ahead.
  const bool in_lock_step = !uses_ports(p.strategy->info().communication);
  if (in_lock_step) f[Factor::cadence] = std::string(name(p.cadence));
  f[Factor::reduction] = std::string(in_lock_step ? "max" : "harmonic");
  if (p.scaling) f[Factor::scaling] = std::string(name(*p.scaling));
  if (p.impossible.empty())
    if (const auto use = table_use(p, layout_of(p, p.ranks, 0), map)) fill_tuned(*p.algorithm, *use, f);
  return f;
}

}  // namespace gradmeter::bench
