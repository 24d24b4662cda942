// SPDX-License-Identifier: Apache-2.0
// Measures the points of one curve: baseline, control and other points take turns of about 100 ms, until every point
// has enough samples. So a state of the machine that lasts for seconds affects all points.
#pragma once
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "bench/engine/machine_state.hpp"
#include "bench/engine/sweep.hpp"
#include "bench/scale/row.hpp"
#include "bench/scale/step_timeline.hpp"

namespace gradmeter::bench {

/// The ranks of the world that a point takes, with their clock, limits and canary (bench/engine/machine_state). A sweep
/// makes each group only once.
struct RankGroup {
  runtime::Communicator active;                    ///< null on ranks that take no part
  std::optional<runtime::SharedClock> clock = {};  ///< one clock for the active ranks
  /// The limits by number of threads and precision, since each precision has a peak of its own.
  std::map<std::pair<int, kernels::Precision>, StepLimits> limits;
  std::unique_ptr<Canary> canary = {};  ///< null until its first use
};

class RankGroups {
 public:
  explicit RankGroups(Session& s) : session_(s) {}
  /// Collective over the world.
  RankGroup& of(const ScalePoint&);
  /// The limits of steps like the point's. To be called by all active ranks of the group.
  StepLimits& limits(RankGroup&, const ScalePoint&);

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
/// fills CurvePoint::buckets too. Each point has its own cadence, not that of the options. foresee: called after the
/// preparation of each point; all points are prepared before any is timed. Its arguments are estimates, valid on rank 0
/// only: `rest` is the least time until all points are measured, and `point` the mean time of a point with its
/// preparation. Each point not yet prepared is assumed to take as long as the cheapest so far.
/// Errors: Interrupted; if all points were prepared before, their rows are first filled in from the blocks so far.
void measure_curve(Session&, RankGroups&, const model::DataSplit&, std::deque<CurvePoint>&, const MeasureOptions&,
                   bool per_bucket, const std::function<void(core::Seconds rest, core::Seconds point)>& foresee);

}  // namespace gradmeter::bench
