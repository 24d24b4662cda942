// SPDX-License-Identifier: Apache-2.0
// The record of one rank's training, step by step: when it computed, and when it made which collectives. Importers turn
// traces of other programs into such records; `Replay` runs them on any fabric.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "core/element.hpp"
#include "dataparallel/fabric/intervals.hpp"

namespace gradmeter::dataparallel {

/// One collective call. Times are counted from the beginning of its step [s].
struct TracedCall {
  std::string collective;   ///< as result files name it: "allreduce"
  std::uint64_t bytes = 0;  ///< bytes of the whole buffer; 0: unknown
  core::Element element = core::Element::f32;
  std::int64_t ranks = 0;    ///< number of ranks in its group; 0: unknown
  Interval when;             ///< may end after the end of the step
  std::string op = {};       ///< operation of a reduction; empty: unknown
  std::string problem = {};  ///< further facts about the call, as result files name them: "root=3"; empty: none
};
/// One action of a rank in a replayed step.
struct ReplayEvent {
  enum class Kind : std::uint8_t { compute, start, wait };
  Kind kind = Kind::compute;
  double seconds = 0;    ///< length of a computation [s]
  std::size_t call = 0;  ///< for a start or a wait: the index of the call in the step
};
struct TracedStep {
  double seconds = 0;
  std::vector<Interval> compute;  ///< when the rank computed; sorted and disjoint
  std::vector<TracedCall> calls;  ///< in the order in which they begin
  /// The events of the step, if the trace says which computation waited for which call; else empty, and `replay_events`
  /// derives them from the times.
  std::vector<ReplayEvent> events{};
};
struct StepTrace {
  std::vector<TracedStep> steps;
  std::string device;      ///< "cpu" or "cuda"; empty: unknown
  std::int64_t ranks = 0;  ///< number of ranks in the whole job; 0: unknown
  bool timed = true;       ///< false: the trace has no times of collectives, so the length of its steps is not known
};

/// The parts of a step [s], as in `Decomposition` (fabric/decorators/probe.hpp).
struct TracedParts {
  double step = 0, compute = 0, communication = 0, exposed = 0, overlap = 0;
};
/// The parts of a step. The time of a call after the end of the step does not count. Cost: O(n log n).
TracedParts parts_of(const TracedStep&);
/// A text that identifies the trace in result rows, both in the trace's own row and in those of its replays:
/// "trace:steps=3,calls=9,bytes=8036472".
std::string trace_text(const StepTrace&);

}  // namespace gradmeter::dataparallel
