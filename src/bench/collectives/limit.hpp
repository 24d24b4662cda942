// Measures the limit of one node in turn with the points: the least work of all ranks on memory at once.
#pragma once
#include <memory>
#include <vector>

#include "bench/collectives/row.hpp"
#include "bench/collectives/task.hpp"
#include "bench/collectives/traffic.hpp"
#include "bench/engine/machine_monitor.hpp"
#include "bench/engine/own_times.hpp"

namespace gradmeter::bench {

/// Has the same rounds as the points. The point outlives it.
class LimitBenchmark {
 public:
  LimitBenchmark(Session&, CollectiveStage&, runtime::SharedClock&, const CollectivePoint&, const RoundOptions&);
  void warm_up();
  bool round();
  /// Once all turns are over: the limit and the ranks' times without the blocks of disturbed turns. Collective.
  void finish(const MachineState&);
  const CollectiveLimit& limit() const { return limit_; }
  /// Of the work, in which no rank waits for another; on rank 0.
  std::span<const OwnTime> by_rank() const { return by_rank_; }

 private:
  CollectiveStage& stage_;
  const CollectivePoint& point_;
  LeastTraffic most_;  ///< of the rank with the most work
  std::unique_ptr<allreduce::Collective> work_;
  allreduce::Call call_;
  std::unique_ptr<CollectiveTask> task_;
  Rounds rounds_;
  Turns turns_, own_turns_;
  core::Blocks own_times_;
  CollectiveLimit limit_;
  std::vector<OwnTime> by_rank_;
};

}  // namespace gradmeter::bench
