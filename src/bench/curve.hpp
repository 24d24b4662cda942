// Measures the points of one curve in turn: baseline, control and contestants alternate in rounds of about 100 ms, so
// that a machine that changes its state for seconds changes it for all of them, and ratios hold.
#pragma once
#include <deque>
#include <functional>
#include <map>
#include <memory>

#include "bench/scale_row.hpp"

namespace gradmeter::bench {

/// The first `ranks` of the world, with what is known of them. Made once a sweep.
struct RankCircle {
  runtime::Communicator active;  ///< null on ranks that sit out
  runtime::ClockOffset offset;
  std::map<int, core::FlopsPerSecond> peak;  ///< by threads
  std::map<dataparallel::TransportKind, core::BytesPerSecond> link;
};

class RankCircles {
 public:
  explicit RankCircles(Session& s) : session_(s) {}
  /// Collective over the world.
  RankCircle& of(int ranks);
  /// Collective over the circle's active ranks.
  Limits limits(RankCircle&, int threads, const TrainingConfig&);

 private:
  Session& session_;
  std::map<int, RankCircle> circles_;
};

struct CurvePoint {
  ScalePoint point;
  TrainingConfig config;
  core::Point row;  ///< experiment and factors set; filled when `finished` hears of it
};

/// Collective over the world. `finished(i)` is called on every rank, as soon as point i is done; on ranks that sat out
/// its row has no metrics. budget: seconds for each point.
/// Errors: Interrupted.
void measure_curve(Session&, RankCircles&, const model::DataSplit&, std::deque<CurvePoint>&, const MeasureOptions&,
                   const std::function<void(std::size_t)>& finished);

}  // namespace gradmeter::bench
