// SPDX-License-Identifier: Apache-2.0
// Runs the steps of a trace on a fabric. A computation of the trace becomes a time in which the rank is busy;
// collectives are made as in the trace.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "dataparallel/fabric/fabric.hpp"
#include "dataparallel/replay/step_trace.hpp"

namespace gradmeter::dataparallel {

/// The events of a step: those of the trace if it has any, otherwise events derived from the times. In derived events,
/// the rank is busy whenever no call was exposed, that is, during computation and during the host's work between
/// kernels. Work that followed an exposed call waits for that call, and the step's end waits for all calls.
/// Cost: O(n log n).
std::vector<ReplayEvent> replay_events(const TracedStep&);

/// The reason why a fabric cannot run this trace, naming a call; empty: it can.
std::string replay_refusal(const StepTrace&);
/// The length of all buffers together [floats].
std::size_t replay_floats(const StepTrace&);
/// The time for which the rank is busy in one pass over all steps of the trace [s]. No pass can be shorter.
double replay_busy_s(const StepTrace&);

/// The rate that a simulated machine must have to run a replay [FLOP/s]: one second of the trace's computation is
/// submitted as this many FLOP.
inline constexpr double replay_flops_per_s = 1e9;

/// What a rank does during a computation of the trace. spin: it keeps its core busy, like a computation on the host.
/// sleep: it leaves its core to other threads, such as the one that moves collectives, like a computation on a GPU.
enum class ReplayedComputation { spin, sleep };

/// Replays a trace; each rank makes a Replay of its own. Collectives have the kind, buffer length and element type of
/// the trace, but are over all of the fabric's ranks, however many the trace had. Reductions take the mean, or of
/// integers the maximum, so that numbers stay in range however often a step runs. `is_over` is asked every millisecond
/// of a computation. Once it returns true, this and all later computations end at once, and the times of these steps
/// mean nothing. Errors: UsageError with the text of `replay_refusal`.
class Replay {
 public:
  Replay(Fabric&, const StepTrace&, ReplayedComputation = ReplayedComputation::spin,
         std::function<bool()> is_over = {});
  std::size_t steps() const { return steps_.size(); }
  void step(std::size_t);
  /// Runs every call once, without computations, on known data. Returns how many elements are wrong on this rank.
  std::uint64_t count_wrong_elements(std::uint64_t seed);

 private:
  struct Step {
    std::vector<ReplayEvent> events;
    std::vector<FabricCall> calls;
  };
  Fabric& fabric_;
  ReplayedComputation computation_;
  std::function<bool()> is_over_;
  /// Entry i is the buffer of call i of each step, as long as the longest of these calls needs.
  std::vector<Buffer> buffers_;
  std::vector<Step> steps_;
};

}  // namespace gradmeter::dataparallel
