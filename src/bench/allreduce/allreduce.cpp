// SPDX-License-Identifier: Apache-2.0
#include "bench/allreduce/allreduce.hpp"

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <tuple>
#include <utility>

#include "bench/allreduce/limits.hpp"
#include "bench/allreduce/measure.hpp"
#include "bench/engine/link_probe.hpp"
#include "core/format.hpp"
#include "runtime/transport/arena.hpp"

namespace gradmeter::bench {
namespace {

using core::Status;

/// The share of the time that measuring the wire (the link between nodes) may take.
constexpr double wire_share = 0.1;
/// The most times that the wire is measured again for a point that seems faster than it.
constexpr int most_wire_repeats = 5;

/// The number of the fake node whose clock this rank shares; without fake nodes the real ones decide.
std::optional<int> clock_node(const Session& s, const NodeMap& map) {
  return map.fake ? std::optional(map.node_of[static_cast<std::size_t>(s.world().rank())]) : std::nullopt;
}

/// Runs one part of a benchmark. If the GPU is lost meanwhile, the error names the benchmark's point.
template <class Result>
Result run_part(CollectiveBenchmark& benchmark, Result (CollectiveBenchmark::*part)()) {
  return for_points([&benchmark] { return benchmark.key(); }, [&benchmark, part] { return (benchmark.*part)(); });
}

constexpr core::Seconds usual_call_budget{1};

/// The collective sweep; points of one group take turns. The ranks' common clock, the canary, the probe of ports and
/// the codecs' estimator are made once for the sweep; buffers, networks and bindings once for each collective.
class CollectiveSweep final : public Experiment {
 public:
  /// All arguments must outlive it; `ranks_listener` may be null.
  CollectiveSweep(Session& s, const NodeMap& map, const CollectiveOptions& o, const RanksListener& ranks_listener)
      : session_(s),
        map_(map),
        options_(o),
        ranks_listener_(ranks_listener),
        faults_{.injection = o.injection, .rank = s.world().rank(), .ranks = s.world().size()},
        estimator_(s, allreduce::shape_of(map.node_of)),
        clock_(s.world(), clock_node(s, map)),
        canary_(s, s.world()) {
    if (map.nodes() > 1) port_probe_.emplace(s, s.world(), map.node_of);
  }

  std::vector<SweepPoint*> plan(const SweepRows& rows) override {
    points_ = plan_collectives(options_, map_);
    for (auto& p : points_) {
      static_cast<SweepPoint&>(p) = rows.point("allreduce", to_factors(p, map_, options_), p.group);
      if (!p.unsupported.empty()) refuse(p.row, Status::unsupported, p.unsupported);
    }
    for (const auto* c : options_.collectives) skip_what_does_not_fit(*c);
    return pointers_to(points_);
  }

  void measure(std::size_t group, SweepRows& rows) override {
    std::vector<CollectivePoint*> points;
    for (auto& p : points_) {
      if (p.group == group && p.is_due()) points.push_back(&p);
    }
    const CollectivePoint& first = *points.front();
    if (first.collective != setup_collective_) {
      setup_collective_ = first.collective;
      setup_.reset();  // before the next one takes its memory
      setup_ = std::make_unique<CollectiveSetup>(session_, map_, needs_of(due(*setup_collective_)), faults_);
    }
    rows.progress(fmt::format("{} {}: {} points in turn", first.collective->name,
                              core::to_text(core::Bytes{first.bytes()}), points.size()));
    const double begin = runtime::host_clock();
    const auto count = static_cast<double>(points.size());
    measure_in_turn(points, benchmark_options(rows.time_for_point(usual_call_budget).value), [&](core::Seconds rest) {
      const double seconds_per_point = (runtime::host_clock() - begin + rest.value) / count;
      rows.foresee({rest.value + seconds_per_point * later_work(group, first)},
                   fmt::format("each of {} is checked, and timed until it has an interval",
                               report::counted(std::ranges::count_if(points_, &CollectivePoint::is_due), "point")));
    });
  }

 private:
  /// Points with equal keys share a limit. The members in order: kind of buffers; placement (true: in place), since
  /// calls in place have less work, and write cache lines that they have read; whether the limit's sums are kept in
  /// fp32, which takes another time.
  using LimitKey = std::tuple<BufferKind, bool, bool>;
  using Limits = std::map<LimitKey, LimitBenchmark>;

  static LimitKey limit_key(const CollectivePoint& p) {
    const bool sums = p.collective->collective_kind == allreduce::CollectiveKind::reduce_scatter;
    return {p.buffers, p.in_place, sums && p.accumulate_wide};
  }

  /// Checks, measures and fills the rows of points that are to be compared. foresee: called, before anything is
  /// measured, with the least time that the points still take. Errors: Interrupted.
  void measure_in_turn(std::vector<CollectivePoint*> group, const BenchmarkOptions& options,
                       const std::function<void(core::Seconds rest)>& foresee) {
    const double begin = runtime::host_clock();
    bind(group);
    std::deque<CollectiveBenchmark> benchmarks;
    for (auto* p : group) {
      benchmarks.emplace_back(session_, *setup_, map_, clock_, *p, options);
      run_part(benchmarks.back(), &CollectiveBenchmark::prepare);
    }
    Limits limits;
    // The limit is a copy in the host's memory, which says nothing of a device's.
    if (!options.rounds.exact_samples && !setup_->is_on_device()) add_limits(group, options.rounds, limits);
    for (auto& benchmark : benchmarks) {
      if (!benchmark.done()) run_part(benchmark, &CollectiveBenchmark::warm_up);
    }
    for (auto& [key, limit] : limits) limit.warm_up();
    core::Seconds rest{0};
    for (const auto& benchmark : benchmarks) rest.value += benchmark.least_time().value;
    for (const auto& [key, limit] : limits) rest.value += limit.least_time().value;
    foresee(rest);
    std::optional<double> end;
    if (options.point_time) end = begin + options.point_time->value * static_cast<double>(group.size());
    const MachineState state = take_turns(benchmarks, limits, options.rounds, end,
                                          session_.run_seed() + (group.empty() ? 0 : group.front()->bytes()));
    for (auto& [key, limit] : limits) limit.finish(state);
    for (std::size_t i = 0; i < group.size(); ++i) {
      CollectivePoint& p = *group[i];
      const auto it = limits.find(limit_key(p));
      const LimitBenchmark* memory_limit = it == limits.end() ? nullptr : &it->second;
      if (p.row.status == Status::ok) benchmarks[i].finish(state);
      fill_limit(p, memory_limit);
      name_slowest(p, benchmarks[i], memory_limit);
      fill_estimate(p);
    }
    session_.stop_if_interrupted(session_.world());
  }

  /// Binds the points' algorithms. Points that cannot be bound get the reason in their rows, and leave the group.
  void bind(std::vector<CollectivePoint*>& group) {
    const auto bound = setup_->bind(group);
    for (std::size_t i = 0; i < group.size(); ++i) {
      group[i]->row.status = bound[i].status;
      group[i]->row.reason = bound[i].reason;
    }
    std::erase_if(group, [](const auto* p) { return p->row.status != Status::ok; });
  }

  /// Points that are found wrong take no more turns. end: the time at which the turns end, by host_clock() [s]; empty:
  /// each point ends by its own budget of samples.
  MachineState take_turns(std::deque<CollectiveBenchmark>& benchmarks, Limits& limits, const RoundOptions& o,
                          std::optional<double> end, std::uint64_t seed) {
    const double usual = o.rule.budget.value * static_cast<double>(benchmarks.size());
    MachineMonitor monitor(&canary_, session_.world(), {end ? *end - runtime::host_clock() : usual});
    PeriodicWork wire(session_.world(), wire_share);
    std::vector<Turn> turns;
    for (auto& benchmark : benchmarks)
      turns.emplace_back([&benchmark] { return benchmark.done() || run_part(benchmark, &CollectiveBenchmark::round); });
    for (auto& [key, limit] : limits) turns.emplace_back([&l = limit] { return l.round(); });
    bench::take_turns(seed, turns, [&](bool enough) {
      if (port_probe_) wire.run_if_due([this] { port_probe_->round(); });
      monitor.round();
      const bool none_left = std::ranges::all_of(benchmarks, &CollectiveBenchmark::done);
      if (none_left || o.exact_samples > 0) return none_left || enough;
      return (end && monitor.is_over()) || (enough && monitor.has_enough(o.rule.min_blocks));
    });
    return monitor.state();
  }

  void add_limits(std::span<CollectivePoint* const> group, const RoundOptions& o, Limits& limits) {
    for (const auto* p : group) {
      if (p->bytes() == 0 || p->row.status != Status::ok) continue;
      limits.try_emplace(limit_key(*p), session_, *setup_, clock_, *p, o);
    }
  }

  /// Fills in the longer of two limits: that of a node's memory traffic (null: not measured), and over several nodes
  /// the wire bound. Collective.
  void fill_limit(CollectivePoint& p, const LimitBenchmark* memory_limit) {
    if (p.row.status != Status::ok) return;
    CollectiveLimit limit = limit_of(p, memory_limit);
    // The rate of the wire is the best of a few exchanges, which may all have been disturbed. So it is measured again
    // before a point is called faster than the wire.
    for (int again = 0; again < most_wire_repeats && port_probe_; ++again) {
      const bool is_doubtful = limit.link.value > 0 && is_faster_than(limit, p.row);
      if (session_.world().all(!is_doubtful)) break;
      port_probe_->round();
      limit = limit_of(p, memory_limit);
    }
    fill_collective_limit(limit, p.row);
  }

  CollectiveLimit limit_of(const CollectivePoint& p, const LimitBenchmark* memory_limit) const {
    core::Machine machine;
    if (port_probe_) machine.node_port.bytes_per_s = port_probe_->rate().value;
    const CollectiveLimit wire = wire_limit(p, map_, machine);
    const bool memory_takes_longer = memory_limit && memory_limit->limit().seconds > wire.seconds;
    return memory_takes_longer ? memory_limit->limit() : wire;
  }

  /// Names the rank whose calls are slowest, where all ranks have equal work: a rank with more work is not slow itself.
  /// In a collective all ranks wait for the slowest one, so its calls may take equally long on all ranks. Then, and
  /// where the ranks' work in calls differs or is not known, the rank is named that is slowest at the work by which the
  /// limit is measured, in which no rank waits for another.
  void name_slowest(CollectivePoint& p, const CollectiveBenchmark& benchmark,
                    const LimitBenchmark* memory_limit) const {
    const auto calls = benchmark.by_rank();
    if (calls.empty()) return;  // the point was not timed, or this is not rank 0
    const auto alone = memory_limit ? memory_limit->by_rank() : std::span<const OwnTime>{};
    std::optional<int> slowest;
    if (ranks_have_equal_work(p, benchmark.serving(), map_)) slowest = straggler(calls);
    if (!slowest && have_equal_traffic(p, static_cast<std::size_t>(map_.ranks()))) slowest = straggler(alone);
    if (slowest) fill_slowest(*slowest, session_.host_of(*slowest), p.row.metrics);
    if (ranks_listener_) ranks_listener_(p.row, {calls, alone});
  }

  void fill_estimate(CollectivePoint& p) {
    if (p.row.status != Status::ok) return;
    const auto estimate = estimator_.of(p);
    if (!estimate) return;
    p.row.metrics[core::Metric::link_bytes_per_s] = estimate->link.value;
    p.row.metrics[core::Metric::crossover_bytes_per_s] = estimate->break_even.value;
    p.row.metrics[core::Metric::predicted_time_s] = estimate->predicted_s;
  }

  /// A lower bound of the time that later groups take, in units of the time of a point like `first`. Points of the same
  /// collective count: one with more bytes as 1, one with fewer bytes as its share of the bytes of `first`.
  double later_work(std::size_t group, const CollectivePoint& first) const {
    double points = 0;
    for (const auto& p : points_) {
      if (p.group <= group || !p.is_due() || p.collective != first.collective) continue;
      points += p.bytes() < first.bytes() ? static_cast<double>(p.bytes()) / static_cast<double>(first.bytes()) : 1;
    }
    return points;
  }

  /// The points of this collective that are to be measured. They share buffers and bindings.
  std::vector<CollectivePoint> due(const CollectiveInfo& c) const {
    std::vector<CollectivePoint> out;
    for (const auto& p : points_) {
      if (p.collective == &c && p.is_due()) out.push_back(p);
    }
    return out;
  }

  SetupNeeds needs_of(std::span<const CollectivePoint> points) const {
    SetupNeeds n = SetupNeeds::of(points, map_, session_.world().rank());
    // If all algorithms are vendors', nobody reads a peer's memory, so private memory (the transport mpi) serves where
    // shared memory has no room.
    if (std::ranges::none_of(points, [](const auto& p) { return p.transport.has_value(); }) &&
        shm_of(n) > session_.free_shm_per_node())
      n.transports = {runtime::TransportKind::mpi};
    return n;
  }

  /// The shared memory that a node needs [bytes]. The largest need of all ranks counts, also for memory below, since
  /// ranks differ in scratch and must agree on what to skip.
  std::size_t shm_of(const SetupNeeds& n) const {
    const auto windows = n.shared_bytes_on_node(session_.ranks_per_node(map_.ranks()), map_.ranks());
    return runtime::shm_for(static_cast<std::size_t>(session_.world().max(static_cast<double>(windows))));
  }

  /// Skips the collective's points from the largest size down, until the memory of the others fits.
  void skip_what_does_not_fit(const CollectiveInfo& c) {
    const auto per_node = static_cast<std::size_t>(session_.ranks_per_node(map_.ranks()));
    const std::size_t free = session_.free_memory_per_node();
    for (auto points = due(c); !points.empty(); points = due(c)) {
      const auto needs = needs_of(points);
      const auto most = session_.world().max(static_cast<double>(needs.resident_bytes()));
      const std::size_t bytes = per_node * static_cast<std::size_t>(most);
      const std::size_t shm = shm_of(needs), free_shm = session_.free_shm_per_node();
      if (bytes <= free && shm <= free_shm) return;
      for (auto& p : points_) {
        if (p.collective == &c && p.is_due() && p.bytes() == needs.max_bytes) {
          refuse(p.row, Status::skipped,
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
                                  .most_block_iterations = 250},
                       .point_time = options_.time_budget ? std::optional(core::Seconds{budget}) : std::nullopt,
                       .check = options_.check,
                       .seed = options_.seed,
                       .run_seed = session_.run_seed()};
    // A fifth of the time at most goes into warm-up.
    o.rounds.warmup_budget = core::Seconds{std::clamp(budget * 0.2, 0.02, 1.0)};
    o.rounds.rule.budget = core::Seconds{std::max(0.0, budget - o.rounds.warmup_budget.value)};
    // Samples are taken over the whole budget, and not only for the usual 0.3 s: states of the machine last longer, and
    // medians of launches that sampled for 0.3 s were 3 % apart.
    o.rounds.rule.min_time = o.rounds.rule.budget;
    return o;
  }

  Session& session_;
  const NodeMap& map_;
  const CollectiveOptions& options_;
  const RanksListener& ranks_listener_;
  InjectedFaults faults_;
  std::vector<CollectivePoint> points_;
  const CollectiveInfo* setup_collective_ = nullptr;  ///< the collective that `setup_` is for
  std::unique_ptr<CollectiveSetup> setup_;
  CodecEstimator estimator_;
  runtime::SharedClock clock_;
  Canary canary_;
  std::optional<PortProbe> port_probe_;  ///< empty on one node
};

}  // namespace

std::size_t run_collectives(Session& s, const NodeMap& map, const CollectiveOptions& o, const FinishedRows& finished,
                            const CollectiveListener& listener) {
  CollectiveSweep sweep(s, map, o, listener.ranks);
  return run_sweep(sweep, peers_of(s, s.world()), finished, listener.rows, o.time_budget);
}

std::vector<Estimated<CollectivePoint>> estimate_collectives(const CollectiveOptions& o, const NodeMap& map) {
  const auto points = plan_collectives(o, map);
  const double seconds_per_point = equal_share(o.time_budget, points.size(), usual_call_budget).value;
  std::map<const CollectiveInfo*, std::vector<CollectivePoint>> points_of;
  for (const auto& p : points) points_of[p.collective].push_back(p);
  std::map<const CollectiveInfo*, std::size_t> resident;
  for (const auto& [collective, own] : points_of) resident[collective] = SetupNeeds::of(own, map, 0).resident_bytes();
  std::vector<Estimated<CollectivePoint>> out;
  for (const auto& p : points) {
    const bool runs = p.unsupported.empty();
    const auto bytes = runs ? resident[p.collective] : 0;
    out.push_back({p, bytes, runs ? seconds_per_point : 0});
  }
  return out;
}

}  // namespace gradmeter::bench
