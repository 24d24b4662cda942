// Measures the points of one curve in turn: baseline, control and contestants alternate in rounds of about 100 ms, and
// all of them until the last has enough, so that a machine that changes its state for seconds changes it for all of
// them.
#pragma once
#include <deque>
#include <map>
#include <memory>
#include <optional>

#include "bench/engine/machine_monitor.hpp"
#include "bench/scale/row.hpp"

namespace gradmeter::bench {

/// The ranks of the world that a point takes, with what is known of them. Made once a sweep.
struct RankGroup {
  runtime::Communicator active;                    ///< null on ranks that sit out
  std::optional<runtime::SharedClock> clock = {};  ///< of the active ranks
  std::map<int, StepLimits> limits;                ///< by threads
  std::unique_ptr<Canary> canary = {};             ///< null until it is first asked
};

class RankGroups {
 public:
  explicit RankGroups(Session& s) : session_(s) {}
  /// Collective over the world.
  RankGroup& of(const ScalePoint&);
  /// On the circle's active ranks.
  StepLimits& limits(RankGroup&, int threads);

 private:
  Session& session_;
  std::map<std::vector<int>, RankGroup> rank_groups_;  ///< by the ranks of the world that they take
};

struct CurvePoint {
  ScalePoint point;
  TrainingConfig config;
  core::Point row;         ///< experiment and factors set; filled when the curve is measured
  bool reference = false;  ///< only there for others to be compared with: an earlier run has its row
  Measurement measured;
};

/// Collective over the world. Afterwards rank 0 has all rows' own figures; what they are compared with is the caller's.
/// Errors: Interrupted, with the rows of points that had an interval by then filled all the same.
void measure_curve(Session&, RankGroups&, const model::DataSplit&, std::deque<CurvePoint>&, const MeasureOptions&);

}  // namespace gradmeter::bench
