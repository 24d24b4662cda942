#include "bench/collectives/collectives.hpp"

#include <algorithm>
#include <deque>

#include "core/format.hpp"

namespace gradmeter::bench {
namespace {

using core::Status;

constexpr core::Seconds usual_point_budget{1};

class Sweep {
 public:
  Sweep(Session& s, const NodeMap& map, const CollectiveOptions& o, const FinishedRows& finished,
        const CollectiveListener& listener)
      : session_(s),
        map_(map),
        options_(o),
        rows_(finished, listener.rows, s.is_root()),
        turns_(s, map, listener.ranks),
        faults_{.injection = o.injection, .rank = s.world().rank(), .ranks = s.world().size()} {}

  std::size_t run() {
    const auto points = plan_collectives(options_.factors, map_);
    const auto is_new = [this](const CollectivePoint& p) {
      return !rows_.finished(to_factors(p, map_, options_.factors));
    };
    rows_.start(static_cast<std::size_t>(std::ranges::count_if(points, is_new)), options_.time_budget);
    for (auto first = points.begin(); first != points.end();) {
      const auto last =
          std::find_if(first, points.end(), [&](const auto& p) { return p.collective != first->collective; });
      run_collective({first, last});
      first = last;
    }
    return rows_.wrong();
  }

 private:
  /// Points of one collective share buffers and bindings.
  void run_collective(std::span<const CollectivePoint> points) {
    std::deque<CollectiveEntry> entries;
    std::vector<CollectivePoint> wanted;
    for (const auto& p : points) {
      CollectiveEntry e{p, {}};
      e.row.experiment = "allreduce";
      e.row.factors = to_factors(p, map_, options_.factors);
      if (!p.unsupported.empty()) refuse(e.row, Status::unsupported, p.unsupported);
      if (is_kept(e)) {
        e.point.unsupported = "kept";
      } else if (e.row.status == Status::ok) {
        wanted.push_back(p);
      }
      entries.push_back(std::move(e));
    }
    skip_what_does_not_fit(entries, wanted);
    std::unique_ptr<CollectiveStage> stage;
    if (!wanted.empty()) stage = std::make_unique<CollectiveStage>(session_, map_, needs_of(wanted), faults_);
    for (auto first = entries.begin(); first != entries.end();) {
      const auto last =
          std::find_if(first, entries.end(), [&](const auto& e) { return e.point.group != first->point.group; });
      std::vector<CollectiveEntry*> group;
      for (auto it = first; it != last; ++it) group.push_back(&*it);
      run_group(stage.get(), group);
      first = last;
    }
  }

  StageNeeds needs_of(std::span<const CollectivePoint> points) const {
    return StageNeeds::of(points, map_, session_.world().rank());
  }

  bool is_kept(const CollectiveEntry& e) const { return rows_.finished(e.row.factors); }

  /// From the largest size down, until what is left fits.
  void skip_what_does_not_fit(std::deque<CollectiveEntry>& entries, std::vector<CollectivePoint>& wanted) const {
    const auto per_node = static_cast<std::size_t>(session_.ranks_per_node(map_.ranks()));
    const std::size_t free = session_.memory_per_node();
    while (!wanted.empty()) {
      const auto needs = needs_of(wanted);
      // Ranks differ in scratch, and must agree on what to skip.
      const auto most = session_.world().max(static_cast<double>(needs.resident_bytes()));
      const std::size_t bytes = per_node * static_cast<std::size_t>(most);
      if (bytes <= free) return;
      for (auto& e : entries) {
        if (e.row.status != Status::ok || e.point.bytes() != needs.max_bytes || is_kept(e)) continue;
        refuse(e.row, Status::skipped, short_of_memory(bytes, free));
      }
      std::erase_if(wanted, [&](const auto& p) { return p.bytes() == needs.max_bytes; });
    }
  }

  void run_group(CollectiveStage* stage, const std::vector<CollectiveEntry*>& group) {
    std::vector<CollectiveEntry*> active;
    for (auto* e : group) {
      if (e->row.status == Status::ok && !is_kept(*e)) active.push_back(e);
    }
    if (!active.empty()) {
      say(active.front()->point, active.size());
      turns_.measure(*stage, active, benchmark_options());
    }
    for (auto* e : group) emit(*e);
  }

  BenchmarkOptions benchmark_options() const {
    const double budget = session_.world().broadcast_value(rows_.share(usual_point_budget).value);
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

  void say(const CollectivePoint& p, std::size_t n) const {
    rows_.progress(
        fmt::format("{} {}: {} points in turn", p.collective->name, core::to_text(core::Bytes{p.bytes()}), n));
  }

  void emit(const CollectiveEntry& e) {
    if (const auto* row = rows_.finished(e.row.factors)) return rows_.show(*row);
    rows_.emit(e.row);
  }

  Session& session_;
  const NodeMap& map_;
  const CollectiveOptions& options_;
  SweepRows rows_;
  CollectiveTurns turns_;
  InjectedFaults faults_;
};

}  // namespace

std::size_t run_collectives(Session& s, const NodeMap& map, const CollectiveOptions& o, const FinishedRows& finished,
                            const CollectiveListener& listener) {
  return Sweep(s, map, o, finished, listener).run();
}

std::vector<CollectiveEstimate> estimate_collectives(const CollectiveOptions& o, const NodeMap& map) {
  const auto points = plan_collectives(o.factors, map);
  const double each = o.time_budget
                          ? o.time_budget->value / static_cast<double>(std::max<std::size_t>(1, points.size()))
                          : usual_point_budget.value;
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
