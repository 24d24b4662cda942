// Runs the steps of a trace on a fabric: computation as busy time, collectives as they are.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "dataparallel/fabric.hpp"
#include "dataparallel/replay/step_trace.hpp"

namespace gradmeter::dataparallel {

/// Those of the trace where it has them. Else busy is all of a step in which no call was exposed: computation, and the
/// host's work between kernels. What followed an exposed call waits for it, and the step's end for all. Cost: O(n log
/// n).
std::vector<ReplayEvent> replay_events(const TracedStep&);

/// Why a fabric cannot run it, naming a call; empty: it can.
std::string replay_refusal(const StepTrace&);
/// Of all buffers [floats].
std::size_t replay_floats(const StepTrace&);
/// Of all computation in a pass over its steps, one after another [s]: no pass can be shorter.
double replay_busy_s(const StepTrace&);

/// A computation of t seconds is t times as many FLOP, for machines whose time is virtual.
inline constexpr double replay_flops_per_s = 1e9;

/// Collectives are over all of the fabric's ranks, however many the trace had, with the buffer, the element type and
/// the kind of the trace. Reductions average, so that numbers stay in range however often a step runs. One for each
/// rank. `is_over`: asked every millisecond of a computation, which ends where it says so, as all after it do; their
/// times then mean nothing. Errors: UsageError, as `replay_refusal` says.
class Replay {
 public:
  Replay(Fabric&, const StepTrace&, std::function<bool()> is_over = {});
  std::size_t steps() const { return steps_.size(); }
  void step(std::size_t);
  /// Runs every call once on known data, each alone. Gives the elements of this rank that are wrong.
  std::uint64_t wrong(std::uint64_t seed);

 private:
  struct Step {
    std::vector<ReplayEvent> events;
    std::vector<FabricCall> calls;
  };
  Fabric& fabric_;
  std::function<bool()> is_over_;
  std::vector<Buffer> buffers_;  ///< by a call's place in its step, as long as the longest there
  std::vector<Step> steps_;
};

}  // namespace gradmeter::dataparallel
