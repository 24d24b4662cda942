// Measures the points of one group of a collective sweep in turn, with the canary, their limits and the wire.
#pragma once
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "bench/collectives/benchmark.hpp"
#include "bench/collectives/codec_estimate.hpp"
#include "bench/collectives/limit.hpp"
#include "bench/engine/link_probe.hpp"
#include "bench/engine/sweep.hpp"

namespace gradmeter::bench {

/// A point and its row.
struct CollectiveEntry : SweepPoint {
  CollectiveEntry(SweepPoint planned, CollectivePoint p) : SweepPoint(std::move(planned)), point(std::move(p)) {}
  CollectivePoint point;
};

/// One point's times by rank: of its calls, with their waits for others, and of its limit's work, in which no rank
/// waits (empty: it has no limit).
struct PointRanks {
  std::span<const OwnTime> calls, alone;
};
using RanksListener = std::function<void(const core::Point&, const PointRanks&)>;

/// Objects that all turns of a sweep use are made once. Collective over the session's world, as is `measure`.
class CollectiveTurns {
 public:
  /// ranks: called on rank 0, may be null. All outlive it.
  CollectiveTurns(Session&, const NodeMap&, const RanksListener& ranks);
  /// Checks, measures and fills the rows of points that are to be compared. Errors: Interrupted.
  void measure(CollectiveStage&, std::vector<CollectiveEntry*> group, const BenchmarkOptions&);

 private:
  /// By buffers and placement: in place there is less work, and lines are written that have been read.
  using Limits = std::map<std::pair<BufferKind, bool>, LimitBenchmark>;

  MachineState take_turns(std::deque<CollectiveBenchmark>&, Limits&, const RoundOptions&);
  void add_limits(CollectiveStage&, std::span<CollectiveEntry* const>, const RoundOptions&, Limits&);
  void fill_limit(CollectiveEntry&, const LimitBenchmark* memory) const;
  void name_slowest(CollectiveEntry&, std::span<const OwnTime> calls, const LimitBenchmark* memory) const;
  void fill_estimate(CollectiveEntry&);

  Session& session_;
  const NodeMap& map_;
  const RanksListener& ranks_;
  CodecEstimator estimator_;
  runtime::SharedClock clock_;
  Canary canary_;
  std::optional<PortProbe> port_;  ///< empty on one node
};

}  // namespace gradmeter::bench
