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

/// The ranks of the world that a point takes, with their clock, limits and canary. Made once a sweep.
struct RankGroup {
  runtime::Communicator active;                    ///< null on ranks that take no part
  std::optional<runtime::SharedClock> clock = {};  ///< of the active ranks
  std::map<int, StepLimits> limits;                ///< by threads
  std::unique_ptr<Canary> canary = {};             ///< null until its first use
};

class RankGroups {
 public:
  explicit RankGroups(Session& s) : session_(s) {}
  /// Collective over the world.
  RankGroup& of(const ScalePoint&);
  /// On the group's active ranks.
  StepLimits& limits(RankGroup&, int threads);

 private:
  Session& session_;
  std::map<std::vector<int>, RankGroup> rank_groups_;  ///< by the ranks of the world that they take
};

struct CurvePoint : SweepPoint {
  CurvePoint(SweepPoint planned, ScalePoint p) : SweepPoint(std::move(planned)), point(std::move(p)) {}
  ScalePoint point;
  bool reference = false;  ///< only measured for comparison: an earlier run has its row
  Measurement measured = {};
  std::vector<BucketTimes> buckets = {};  ///< where they are asked for
};

/// Collective over the world: the time of a point's second step, on rank 0.
core::Seconds trial_step(Session&, RankGroups&, const model::DataSplit&, const ScalePoint&);

/// Collective over the world. Afterwards rank 0 has all rows' own figures; the caller makes comparisons.
/// Errors: Interrupted, with the rows of points that had an interval by then filled all the same.
/// per_bucket: fill CurvePoint::buckets. foresee: called as soon as more is known, before anything is measured, with
/// the least time that all points still take, and a point's mean share of it, preparation included; right on rank 0.
void measure_curve(Session&, RankGroups&, const model::DataSplit&, std::deque<CurvePoint>&, const MeasureOptions&,
                   bool per_bucket, const std::function<void(core::Seconds rest, core::Seconds point)>& foresee);

}  // namespace gradmeter::bench
