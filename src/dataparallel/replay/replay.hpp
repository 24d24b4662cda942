// SPDX-License-Identifier: Apache-2.0
// Runs the steps of a trace on a fabric: computation becomes busy time of the rank, collectives are made as they were.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "dataparallel/fabric/fabric.hpp"
#include "dataparallel/replay/step_trace.hpp"

namespace gradmeter::dataparallel {

/// The events of a step, taken from the trace if it has them. Otherwise the rank counts as busy whenever no call was
/// exposed: in computation, and in the host's work between kernels. Work that followed an exposed call waits for that
/// call, and the step's end waits for all calls. Cost: O(n log n).
std::vector<ReplayEvent> replay_events(const TracedStep&);

/// The reason why a fabric cannot run this trace, naming a call; empty: it can.
std::string replay_refusal(const StepTrace&);
/// The length of all buffers [floats].
std::size_t replay_floats(const StepTrace&);
/// The time of all computation in a pass over the trace's steps, one after another [s]. No pass can be shorter.
double replay_busy_s(const StepTrace&);

/// A computation of t seconds counts as t times this many FLOP, for machines whose time is virtual.
inline constexpr double replay_flops_per_s = 1e9;

/// Each rank makes one Replay. Collectives are over all of the fabric's ranks, however many the trace had, with the
/// trace's buffer length, element type and kind. Reductions average, so that numbers stay in range however often a step
/// runs. `is_over` is asked every millisecond of a computation. If it returns true, this and all later computations end
/// at once, and times mean nothing. Errors: UsageError, as `replay_refusal` says.
class Replay {
 public:
  Replay(Fabric&, const StepTrace&, std::function<bool()> is_over = {});
  std::size_t steps() const { return steps_.size(); }
  void step(std::size_t);
  /// Runs every call once by itself on known data. Returns the number of elements of this rank that are wrong.
  std::uint64_t wrong(std::uint64_t seed);

 private:
  struct Step {
    std::vector<ReplayEvent> events;
    std::vector<FabricCall> calls;
  };
  Fabric& fabric_;
  std::function<bool()> is_over_;
  std::vector<Buffer> buffers_;  ///< by a call's index in its step; each is as long as the longest buffer there
  std::vector<Step> steps_;
};

}  // namespace gradmeter::dataparallel
