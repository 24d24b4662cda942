#include "bench/collectives.hpp"

#include <algorithm>
#include <deque>
#include <set>

#include "bench/codec_outlook.hpp"
#include "bench/kernel_row.hpp"
#include "bench/link_probe.hpp"
#include "core/format.hpp"

namespace gradmeter::bench {
namespace {

using core::Point;
using core::Status;

constexpr double usual_point_budget = 1;

/// By buffers and place: in place there is less to do, and lines are written that have been read.
using Limits = std::map<std::pair<BufferKind, bool>, LimitContestant>;

/// A point and what becomes of it.
struct Entry {
  CollectivePoint point;
  Point row;
  std::optional<std::size_t> kept = {};
};

class Sweep {
 public:
  Sweep(Session& s, const NodeMap& map, const CollectiveOptions& o, const std::map<std::string, Point>& finished,
        const CollectiveListener& listener)
      : session_(s),
        map_(map),
        options_(o),
        finished_(finished),
        listener_(listener),
        outlooks_(s),
        faults_{.injection = o.injection, .rank = s.world().rank(), .ranks = s.world().size()} {}

  std::size_t run() {
    const auto points = plan_collectives(options_.factors, map_);
    left_ = points.size();
    begin_ = runtime::host_clock();
    // Nodes that are played have clocks of their own too.
    const auto me = static_cast<std::size_t>(session_.world().rank());
    clock_.emplace(session_.world(), map_.fake ? std::optional(map_.node_of[me]) : std::nullopt);
    if (map_.nodes() > 1) port_.emplace(session_, session_.world(), map_.node_of);
    canary_.emplace(session_, session_.world());
    for (auto first = points.begin(); first != points.end();) {
      const auto last =
          std::find_if(first, points.end(), [&](const auto& p) { return p.collective != first->collective; });
      run_collective({first, last});
      first = last;
    }
    return wrong_;
  }

 private:
  /// Points of one collective share buffers and bindings.
  void run_collective(std::span<const CollectivePoint> points) {
    std::deque<Entry> entries;
    std::vector<CollectivePoint> wanted;
    for (const auto& p : points) {
      Entry e{p, {}};
      e.row.experiment = "allreduce";
      e.row.factors = to_factors(p, map_, options_.factors);
      if (!p.unsupported.empty()) refuse(e, Status::unsupported, p.unsupported);
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
      std::vector<Entry*> group;
      for (auto it = first; it != last; ++it) group.push_back(&*it);
      run_group(stage.get(), group);
      first = last;
    }
  }

  StageNeeds needs_of(std::span<const CollectivePoint> points) const {
    return StageNeeds::of(points, map_, session_.world().rank());
  }

  bool is_kept(const Entry& e) const { return finished_.contains(e.row.factors.key()); }

  static void refuse(Entry& e, Status status, const std::string& reason) {
    e.row.status = status;
    e.row.reason = reason;
  }

  /// From the largest size down, until what is left fits.
  void skip_what_does_not_fit(std::deque<Entry>& entries, std::vector<CollectivePoint>& wanted) const {
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
        refuse(e, Status::skipped,
               fmt::format("needs {} on a node that has {} free", core::to_text(core::Bytes{bytes}),
                           core::to_text(core::Bytes{free})));
      }
      std::erase_if(wanted, [&](const auto& p) { return p.bytes() == needs.max_bytes; });
    }
  }

  void run_group(CollectiveStage* stage, const std::vector<Entry*>& group) {
    std::vector<Entry*> active;
    for (auto* e : group) {
      if (e->row.status == Status::ok && !is_kept(*e)) active.push_back(e);
    }
    if (!active.empty()) measure_group(*stage, active);
    for (auto* e : group) emit(*e);
  }

  void measure_group(CollectiveStage& stage, std::vector<Entry*>& active) {
    say(active.front()->point, active.size());
    bind(stage, active);
    const ContestantOptions options = contestant_options();
    std::deque<CollectiveContestant> contestants;
    for (auto* e : active) {
      contestants.emplace_back(session_, stage, map_, *clock_, e->point, options, e->row);
      contestants.back().prepare();
    }
    Limits limits;
    if (!options_.exact_samples) add_limits(stage, active, options, limits);
    for (auto& c : contestants) {
      if (!c.done()) c.warm_up();
    }
    for (auto& [place, limit] : limits) limit.warm_up();
    const MachineState state = take_turns(contestants, limits, options.rounds);
    for (auto& [place, limit] : limits) limit.finish(state);
    for (std::size_t i = 0; i < active.size(); ++i) {
      if (active[i]->row.status == Status::ok) contestants[i].finish(state);
      fill_limit(*active[i], limits);
      name_slowest(*active[i], contestants[i].by_rank(), limits);
      fill_outlook(*active[i]);
    }
    session_.stop_if_interrupted(session_.world());
  }

  /// All stay until the last has enough; what is wrong leaves. The canary stands first in each turn: the calls that
  /// each point discards bring its caches back.
  MachineState take_turns(std::deque<CollectiveContestant>& contestants, Limits& limits, const RoundOptions& o) {
    const double points = static_cast<double>(contestants.size());
    Watch watch(&canary_.value(), session_.world(), core::Seconds{o.rule.budget.value * points});
    SideWork wire(session_.world(), 0.1);
    for (bool enough = false; !enough;) {
      enough = true;
      bool any = false;
      watch.round();
      for (auto& c : contestants) {
        if (c.done()) continue;
        any = true;
        enough &= c.round();
      }
      if (!any) break;
      for (auto& [place, limit] : limits) enough &= limit.round();
      if (port_) wire.turn([this] { port_->round(); });
      if (enough && o.exact_samples == 0) enough = watch.has_enough(o.rule.min_blocks);
    }
    return watch.state();
  }

  void add_limits(CollectiveStage& stage, const std::vector<Entry*>& active, const ContestantOptions& o,
                  Limits& limits) {
    for (const auto* e : active) {
      if (e->point.bytes() == 0 || e->row.status != Status::ok) continue;
      limits.try_emplace({e->point.buffers, e->point.in_place}, session_, stage, *clock_, e->point, o.rounds);
    }
  }

  void bind(CollectiveStage& stage, std::vector<Entry*>& active) {
    std::vector<const CollectivePoint*> points;
    for (const auto* e : active) points.push_back(&e->point);
    const auto why = stage.bind(points);
    for (std::size_t i = 0; i < active.size(); ++i) {
      if (!why[i].empty()) refuse(*active[i], Status::failed, why[i]);
    }
    std::erase_if(active, [](const Entry* e) { return e->row.status != Status::ok; });
  }

  /// What a node must move in its memory, and over several nodes what it must send: the longer of both.
  void fill_limit(Entry& e, const Limits& limits) const {
    if (e.row.status != Status::ok) return;
    const auto rate = port_ ? port_->rate() : core::BytesPerSecond{};
    const double bound = wire_bound(e.point, map_, rate);
    const CollectiveLimit wire{.seconds = bound, .low = bound, .name = "wire", .link = rate};
    const auto it = limits.find({e.point.buffers, e.point.in_place});
    const CollectiveLimit memory = it == limits.end() ? CollectiveLimit{} : it->second.limit();
    fill_collective_limit(memory.seconds > wire.seconds ? memory : wire, e.row);
  }

  /// In a collective all wait for the slowest, so that times of calls may be alike on all ranks: then the rank that the
  /// limit's work takes longest by itself.
  void name_slowest(Entry& e, std::span<const OwnTime> calls, const Limits& limits) {
    if (calls.empty()) return;
    const auto it = limits.find({e.point.buffers, e.point.in_place});
    const auto alone = it == limits.end() ? std::span<const OwnTime>{} : it->second.by_rank();
    auto slowest = straggler(calls);
    if (!slowest) slowest = straggler(alone);
    if (slowest) fill_slowest(*slowest, session_.host_of(*slowest), e.row.metrics);
    if (session_.is_root() && listener_.ranks) listener_.ranks(e.row, {calls, alone});
  }

  void fill_outlook(Entry& e) {
    if (e.row.status != Status::ok) return;
    const auto o = outlooks_.of(e.point);
    if (!o) return;
    e.row.metrics[core::Metric::link_bytes_per_s] = o->link.value;
    e.row.metrics[core::Metric::crossover_bytes_per_s] = o->crossover.value;
    e.row.metrics[core::Metric::predicted_time_s] = o->predicted_s;
  }

  ContestantOptions contestant_options() const {
    double budget = usual_point_budget;
    if (options_.time_budget) {
      const double rest = options_.time_budget->value - (runtime::host_clock() - begin_);
      budget = std::max(rest, 0.0) / static_cast<double>(std::max<std::size_t>(1, left_));
    }
    budget = session_.world().broadcast_value(budget);
    ContestantOptions o{.rounds = {.rule = options_.rule,
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
    if (!session_.is_root() || !listener_.progress) return;
    listener_.progress(
        fmt::format("{} {}: {} points in turn", p.collective->name, core::to_text(core::Bytes{p.bytes()}), n));
  }

  void emit(const Entry& e) {
    --left_;
    const auto kept = finished_.find(e.row.factors.key());
    if (kept != finished_.end()) {
      if (session_.is_root() && listener_.kept) listener_.kept(kept->second);
      return;
    }
    wrong_ += e.row.status == Status::wrong;
    if (session_.is_root()) listener_.measured(e.row);
  }

  Session& session_;
  const NodeMap& map_;
  const CollectiveOptions& options_;
  const std::map<std::string, Point>& finished_;
  const CollectiveListener& listener_;
  CodecOutlooks outlooks_;
  InjectedFaults faults_;
  std::optional<runtime::SharedClock> clock_;
  std::optional<PortProbe> port_;  ///< empty on one node
  std::optional<Canary> canary_;
  std::size_t left_ = 0, wrong_ = 0;
  double begin_ = 0;
};

}  // namespace

std::size_t run_collectives(Session& s, const NodeMap& map, const CollectiveOptions& o,
                            const std::map<std::string, Point>& finished, const CollectiveListener& listener) {
  return Sweep(s, map, o, finished, listener).run();
}

std::vector<CollectiveEstimate> estimate_collectives(const CollectiveOptions& o, const NodeMap& map) {
  const auto points = plan_collectives(o.factors, map);
  const double each = o.time_budget
                          ? o.time_budget->value / static_cast<double>(std::max<std::size_t>(1, points.size()))
                          : usual_point_budget;
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
