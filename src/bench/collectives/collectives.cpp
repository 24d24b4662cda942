#include "bench/collectives/collectives.hpp"

#include <algorithm>

#include "core/format.hpp"
#include "runtime/transport/arena.hpp"

namespace gradmeter::bench {
namespace {

using core::Status;

constexpr core::Seconds usual_point_budget{1};

class CollectiveSweep final : public Experiment {
 public:
  CollectiveSweep(Session& s, const NodeMap& map, const CollectiveOptions& o, const RanksListener& ranks)
      : session_(s),
        map_(map),
        options_(o),
        faults_{.injection = o.injection, .rank = s.world().rank(), .ranks = s.world().size()},
        turns_(s, map, ranks) {}

  std::vector<SweepPoint*> plan(const SweepRows& rows) override {
    for (const auto& p : plan_collectives(options_.factors, map_)) {
      auto& e = entries_.emplace_back(rows.point("allreduce", to_factors(p, map_, options_.factors), p.group), p);
      if (!p.unsupported.empty()) refuse(e.row, Status::unsupported, p.unsupported);
    }
    for (const auto* c : options_.factors.collectives) skip_what_does_not_fit(*c);
    return pointers_to(entries_);
  }

  void measure(std::size_t group, SweepRows& rows) override {
    std::vector<CollectiveEntry*> points;
    for (auto& e : entries_) {
      if (e.group == group && e.is_due()) points.push_back(&e);
    }
    const CollectivePoint& first = points.front()->point;
    if (first.collective != staged_) {
      staged_ = first.collective;
      stage_.reset();  // before the next one takes its memory
      stage_ = std::make_unique<CollectiveStage>(session_, map_, needs_of(due(*staged_)), faults_);
    }
    rows.progress(fmt::format("{} {}: {} points in turn", first.collective->name,
                              core::to_text(core::Bytes{first.bytes()}), points.size()));
    turns_.measure(*stage_, points, benchmark_options(rows.share(usual_point_budget).value));
  }

 private:
  /// They share buffers and bindings.
  std::vector<CollectivePoint> due(const CollectiveInfo& c) const {
    std::vector<CollectivePoint> out;
    for (const auto& e : entries_) {
      if (e.point.collective == &c && e.is_due()) out.push_back(e.point);
    }
    return out;
  }

  StageNeeds needs_of(std::span<const CollectivePoint> points) const {
    StageNeeds n = StageNeeds::of(points, map_, session_.world().rank());
    // Vendors alone read no peer's memory: private memory serves them where shared memory has no room.
    if (std::ranges::none_of(points, [](const auto& p) { return p.transport.has_value(); }) &&
        shm_of(n) > session_.shm_per_node())
      n.transports = {runtime::TransportKind::mpi};
    return n;
  }

  /// The same on all ranks, as are the needs of memory below: ranks differ in scratch, and must agree on what to skip.
  std::size_t shm_of(const StageNeeds& n) const {
    const auto windows = n.window_bytes(session_.ranks_per_node(map_.ranks()), map_.ranks());
    return runtime::shm_for(static_cast<std::size_t>(session_.world().max(static_cast<double>(windows))));
  }

  /// From the largest size down, until what is left fits.
  void skip_what_does_not_fit(const CollectiveInfo& c) {
    const auto per_node = static_cast<std::size_t>(session_.ranks_per_node(map_.ranks()));
    const std::size_t free = session_.memory_per_node();
    for (auto points = due(c); !points.empty(); points = due(c)) {
      const auto needs = needs_of(points);
      const auto most = session_.world().max(static_cast<double>(needs.resident_bytes()));
      const std::size_t bytes = per_node * static_cast<std::size_t>(most);
      const std::size_t shm = shm_of(needs), free_shm = session_.shm_per_node();
      if (bytes <= free && shm <= free_shm) return;
      for (auto& e : entries_) {
        if (e.point.collective == &c && e.is_due() && e.point.bytes() == needs.max_bytes) {
          refuse(e.row, Status::skipped,
                 bytes > free ? short_of_memory(bytes, free) : runtime::short_of_shm(shm, free_shm));
        }
      }
    }
  }

  BenchmarkOptions benchmark_options(double budget) const {
    BenchmarkOptions o{.rounds = {.rule = options_.rule,
                                  .exact_samples = options_.exact_samples,
                                  .exact_warmup = options_.exact_warmup,
                                  .discarded = 3,
                                  .settling = core::Seconds{0.002},
                                  .block = core::Seconds{0.075},
                                  .longest_block = 250},
                       .check = options_.check,
                       .seed = options_.seed,
                       .run_seed = session_.run_seed()};
    // A fifth of the time at most goes into warm-up.
    o.rounds.warmup_budget = core::Seconds{std::clamp(budget * 0.2, 0.02, 1.0)};
    o.rounds.rule.budget = core::Seconds{std::max(0.0, budget - o.rounds.warmup_budget.value)};
    return o;
  }

  Session& session_;
  const NodeMap& map_;
  const CollectiveOptions& options_;
  InjectedFaults faults_;
  std::deque<CollectiveEntry> entries_;
  const CollectiveInfo* staged_ = nullptr;
  std::unique_ptr<CollectiveStage> stage_;  ///< of this collective
  CollectiveTurns turns_;
};

}  // namespace

std::size_t run_collectives(Session& s, const NodeMap& map, const CollectiveOptions& o, const FinishedRows& finished,
                            const CollectiveListener& listener) {
  CollectiveSweep sweep(s, map, o, listener.ranks);
  return run_sweep(sweep, peers_of(s, s.world()), finished, listener.rows, o.time_budget);
}

std::vector<CollectiveEstimate> estimate_collectives(const CollectiveOptions& o, const NodeMap& map) {
  const auto points = plan_collectives(o.factors, map);
  const double each = equal_share(o.time_budget, points.size(), usual_point_budget).value;
  std::map<const CollectiveInfo*, std::vector<CollectivePoint>> of;
  for (const auto& p : points) of[p.collective].push_back(p);
  std::map<const CollectiveInfo*, std::size_t> resident;
  for (const auto& [collective, its] : of) resident[collective] = StageNeeds::of(its, map, 0).resident_bytes();
  std::vector<CollectiveEstimate> out;
  for (const auto& p : points) {
    const bool runs = p.unsupported.empty();
    const auto bytes = runs ? resident[p.collective] : 0;
    out.push_back({p, bytes, runs ? each : 0});
  }
  return out;
}

}  // namespace gradmeter::bench
