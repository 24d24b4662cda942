#include "bench/collectives/turns.hpp"

#include <algorithm>

namespace gradmeter::bench {
namespace {

using core::Status;

/// The share of the time that measuring the wire may take.
constexpr double wire_share = 0.1;
/// How far the wire's rate, the best of some exchanges, may lie below what it can do, so that so little is not "faster
/// than can be": on a link of 1 Gbit/s it was 3 % in one of four runs.
constexpr double wire_doubt = 0.05;

/// Fake nodes have clocks of their own too.
std::optional<int> clock_of(const Session& s, const NodeMap& map) {
  return map.fake ? std::optional(map.node_of[static_cast<std::size_t>(s.world().rank())]) : std::nullopt;
}

/// Points that cannot be bound get their reason, and leave the group.
void bind(CollectiveStage& stage, std::vector<CollectiveEntry*>& group) {
  std::vector<const CollectivePoint*> points;
  for (const auto* e : group) points.push_back(&e->point);
  const auto why = stage.bind(points);
  for (std::size_t i = 0; i < group.size(); ++i) {
    if (!why[i].empty()) group[i]->row.status = Status::failed, group[i]->row.reason = why[i];
  }
  std::erase_if(group, [](const auto* e) { return e->row.status != Status::ok; });
}

}  // namespace

CollectiveTurns::CollectiveTurns(Session& s, const NodeMap& map, const RanksListener& ranks)
    : session_(s), map_(map), ranks_(ranks), estimator_(s), clock_(s.world(), clock_of(s, map)), canary_(s, s.world()) {
  if (map.nodes() > 1) port_.emplace(s, s.world(), map.node_of);
}

void CollectiveTurns::measure(CollectiveStage& stage, std::vector<CollectiveEntry*> group,
                              const BenchmarkOptions& options) {
  bind(stage, group);
  std::deque<CollectiveBenchmark> benchmarks;
  for (auto* e : group) {
    benchmarks.emplace_back(session_, stage, map_, clock_, e->point, options, e->row);
    benchmarks.back().prepare();
  }
  Limits limits;
  // The limit is a copy in the host's memory, which says nothing of a device's.
  if (!options.rounds.exact_samples && !stage.is_on_device()) add_limits(stage, group, options.rounds, limits);
  for (auto& c : benchmarks) {
    if (!c.done()) c.warm_up();
  }
  for (auto& [place, limit] : limits) limit.warm_up();
  const MachineState state = take_turns(benchmarks, limits, options.rounds);
  for (auto& [place, limit] : limits) limit.finish(state);
  for (std::size_t i = 0; i < group.size(); ++i) {
    CollectiveEntry& e = *group[i];
    const auto it = limits.find({e.point.buffers, e.point.in_place});
    const LimitBenchmark* memory = it == limits.end() ? nullptr : &it->second;
    if (e.row.status == Status::ok) benchmarks[i].finish(state);
    fill_limit(e, memory);
    name_slowest(e, benchmarks[i].by_rank(), memory);
    fill_estimate(e);
  }
  session_.stop_if_interrupted(session_.world());
}

/// Wrong points leave. The canary is first in each turn, because the discarded calls of each point restore the caches.
MachineState CollectiveTurns::take_turns(std::deque<CollectiveBenchmark>& benchmarks, Limits& limits,
                                         const RoundOptions& o) {
  const double points = static_cast<double>(benchmarks.size());
  MachineMonitor monitor(&canary_, session_.world(), core::Seconds{o.rule.budget.value * points});
  PeriodicWork wire(session_.world(), wire_share);
  std::vector<Turn> turns{[&] { return monitor.round(), true; }};
  for (auto& c : benchmarks) turns.emplace_back([&c] { return c.done() || c.round(); });
  for (auto& [place, limit] : limits) turns.emplace_back([&l = limit] { return l.round(); });
  if (port_) turns.emplace_back([&] { return wire.turn([this] { port_->round(); }), true; });
  bench::take_turns(turns, [&](bool enough) {
    const bool none_left = std::ranges::all_of(benchmarks, &CollectiveBenchmark::done);
    return none_left || (enough && (o.exact_samples > 0 || monitor.has_enough(o.rule.min_blocks)));
  });
  return monitor.state();
}

void CollectiveTurns::add_limits(CollectiveStage& stage, std::span<CollectiveEntry* const> group, const RoundOptions& o,
                                 Limits& limits) {
  for (const auto* e : group) {
    if (e->point.bytes() == 0 || e->row.status != Status::ok) continue;
    limits.try_emplace({e->point.buffers, e->point.in_place}, session_, stage, clock_, e->point, o);
  }
}

/// The longer of a node's memory traffic and, over several nodes, of what it must send.
void CollectiveTurns::fill_limit(CollectiveEntry& e, const LimitBenchmark* memory) const {
  if (e.row.status != Status::ok) return;
  core::Machine machine;
  if (port_) machine.node_port.bytes_per_s = port_->rate().value;
  const double bound = wire_bound(e.point, map_, machine);
  const CollectiveLimit wire{
      .seconds = bound, .low = bound * (1 - wire_doubt), .name = "wire", .link = {machine.node_port.bytes_per_s}};
  fill_collective_limit(memory && memory->limit().seconds > bound ? memory->limit() : wire, e.row);
}

/// In a collective all ranks wait for the slowest, so times of calls may be alike on all ranks. Then it is the rank
/// that is slowest at the limit's work, in which no rank waits.
void CollectiveTurns::name_slowest(CollectiveEntry& e, std::span<const OwnTime> calls,
                                   const LimitBenchmark* memory) const {
  if (calls.empty()) return;  // also on ranks other than the first
  const auto alone = memory ? memory->by_rank() : std::span<const OwnTime>{};
  auto slowest = straggler(calls);
  if (!slowest) slowest = straggler(alone);
  if (slowest) fill_slowest(*slowest, session_.host_of(*slowest), e.row.metrics);
  if (ranks_) ranks_(e.row, {calls, alone});
}

void CollectiveTurns::fill_estimate(CollectiveEntry& e) {
  if (e.row.status != Status::ok) return;
  const auto o = estimator_.of(e.point);
  if (!o) return;
  e.row.metrics[core::Metric::link_bytes_per_s] = o->link.value;
  e.row.metrics[core::Metric::crossover_bytes_per_s] = o->crossover.value;
  e.row.metrics[core::Metric::predicted_time_s] = o->predicted_s;
}

}  // namespace gradmeter::bench
