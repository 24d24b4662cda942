// SPDX-License-Identifier: Apache-2.0
// Measures the points of one curve in turn. Baseline, control and other points alternate in rounds of about 100 ms,
// until the last has enough samples. So a state of the machine that lasts for seconds affects all of them.
#pragma once
#include <deque>
#include <map>
#include <memory>
#include <optional>

#include "bench/engine/machine_state.hpp"
#include "bench/engine/sweep.hpp"
#include "bench/scale/row.hpp"
#include "bench/scale/step_timeline.hpp"

namespace gradmeter::bench {

/// The ranks of the world that a point takes, with their clock, limits and canary. A sweep makes each group only once.
struct RankGroup {
  runtime::Communicator active;                    ///< null on ranks that take no part
  std::optional<runtime::SharedClock> clock = {};  ///< one clock for the active ranks
  std::map<int, StepLimits> limits;                ///< by number of threads
  std::unique_ptr<Canary> canary = {};             ///< null until its first use
};

class RankGroups {
 public:
  explicit RankGroups(Session& s) : session_(s) {}
  /// Collective over the world.
  RankGroup& of(const ScalePoint&);
  /// To be called by all active ranks of the group.
  StepLimits& limits(RankGroup&, int threads);

 private:
  Session& session_;
  std::map<std::vector<int>, RankGroup> rank_groups_;  ///< by the ranks of the world in the group
};

struct CurvePoint : SweepPoint {
  CurvePoint(SweepPoint planned, ScalePoint p) : SweepPoint(std::move(planned)), point(std::move(p)) {}
  ScalePoint point;
  bool reference = false;  ///< measured only for comparison with other points; it gives no new row
  Measurement measured = {};
  std::vector<BucketTimes> buckets = {};  ///< empty unless they are asked for
};

/// Returns the time of a point's second step, valid on rank 0. Collective over the world.
core::Seconds trial_step(Session&, RankGroups&, const model::DataSplit&, const ScalePoint&);

/// Measures the points and fills in their rows on rank 0, without comparisons. Collective over the world. per_bucket:
/// fills CurvePoint::buckets too. foresee: called after each point is prepared, before any point is timed, with the
/// least time that all points still take and the mean time that a point takes with its preparation [s]; both are known
/// on rank 0 only.
/// Errors: Interrupted, after the rows of points that have an interval by then are filled in.
void measure_curve(Session&, RankGroups&, const model::DataSplit&, std::deque<CurvePoint>&, const MeasureOptions&,
                   bool per_bucket, const std::function<void(core::Seconds rest, core::Seconds point)>& foresee);

}  // namespace gradmeter::bench
