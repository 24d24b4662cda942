// SPDX-License-Identifier: Apache-2.0
// Measures the points of one group of a collective sweep in turn, together with the canary and the points' limits.
#pragma once
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "bench/allreduce/limits.hpp"
#include "bench/allreduce/measure.hpp"
#include "bench/engine/link_probe.hpp"
#include "bench/engine/sweep.hpp"
#include "core/table.hpp"
#include "report/cells.hpp"

namespace gradmeter::bench {

/// A point and its row.
struct CollectiveEntry : SweepPoint {
  CollectiveEntry(SweepPoint planned, CollectivePoint p) : SweepPoint(std::move(planned)), point(std::move(p)) {}
  CollectivePoint point;
};

/// One point's times by rank. calls: times of its calls, including waits for other ranks. alone: times of the work that
/// the point's limit measures, in which no rank waits; empty without a limit.
struct PointRanks {
  std::span<const OwnTime> calls, alone;
};
using RanksListener = std::function<void(const core::Point&, const PointRanks&)>;

/// Objects that all turns of a sweep use are made once. Collective over the session's world, as is `measure`.
class CollectiveTurns {
 public:
  /// ranks: called on rank 0, may be null. All arguments must outlive the object.
  CollectiveTurns(Session&, const NodeMap&, const RanksListener& ranks);
  /// Checks, measures and fills the rows of points that are to be compared. foresee: called, before anything is
  /// measured, with the least time that the points still take. Errors: Interrupted.
  void measure(CollectiveStage&, std::vector<CollectiveEntry*> group, const BenchmarkOptions&,
               const std::function<void(core::Seconds rest)>& foresee);

 private:
  /// Limits by kind of buffers and by place: calls in place have less work, and write lines that have been read.
  using Limits = std::map<std::pair<BufferKind, bool>, LimitBenchmark>;

  /// end: the time at which the turns end, by host_clock() [s]; nothing: each point has its budget of samples.
  MachineState take_turns(std::deque<CollectiveBenchmark>&, Limits&, const RoundOptions&, std::optional<double> end);
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

// The collective sweep: every algorithm is checked, timed in turn with the vendor's, and compared with the limit.

/// Receives the sweep's points. Called on rank 0 only.
struct CollectiveListener {
  RowListener rows;
  /// Called for each point that was timed, with its times by rank; may be null.
  RanksListener ranks = {};
};

/// Collective over the session's world. `finished`: points of earlier runs by Factors::key(); the same on every rank.
/// Gives the number of wrong points. Errors: Interrupted.
std::size_t run_collectives(Session&, const NodeMap&, const CollectiveOptions&, const FinishedRows& finished,
                            const CollectiveListener&);

/// Estimates what each point needs, for --dry-run, without any ranks.
std::vector<Estimated<CollectivePoint>> estimate_collectives(const CollectiveOptions&, const NodeMap&);

/// One table for each collective, type, operation, buffers and cadence, in the order of their first point; rows by
/// size. A row has its times out of place and in place, where there are both. Rows that were not measured show why.
std::string collective_tables(std::span<const core::Point>, std::size_t width = core::any_width);
/// Explains the columns, below the last table.
std::string collective_legend(report::Legend);

const report::CsvColumns& collective_csv();
/// The fastest algorithm of each size and placement with the vendor's beside it, where several were measured, from the
/// findings "fastest_exchange". Empty where there is nothing to choose.
std::string collective_winners(std::span<const core::Point>, std::size_t width = core::any_width);

/// Compares each point with a codec with the point without it at otherwise equal factors; empty without such pairs.
std::string codec_comparison(std::span<const core::Point>, std::size_t width = core::any_width);
std::string codec_comparison_legend();

}  // namespace gradmeter::bench
