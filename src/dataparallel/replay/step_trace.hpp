// SPDX-License-Identifier: Apache-2.0
// The record of one rank's training, step by step: when it computed, and when it made which collectives. Importers read
// traces of other programs as such values; `Replay` runs them on any fabric.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "core/element.hpp"
#include "dataparallel/fabric/intervals.hpp"

namespace gradmeter::dataparallel {

/// One collective call. Times count from the begin of its step [s].
struct TracedCall {
  std::string collective;   ///< as result files name it: "allreduce"
  std::uint64_t bytes = 0;  ///< bytes of the whole buffer; 0: unknown
  core::Element element = core::Element::f32;
  std::int64_t ranks = 0;    ///< ranks of its group; 0: unknown
  Interval when;             ///< may end after its step
  std::string op = {};       ///< operation of a reduction; empty: unknown
  std::string problem = {};  ///< further facts about the call, as result files name them: "root=3"; empty: none
};
/// The next action of a rank in a replayed step.
struct ReplayEvent {
  enum class Kind : std::uint8_t { compute, start, wait };
  Kind kind = Kind::compute;
  double seconds = 0;    ///< length of a computation [s]
  std::size_t call = 0;  ///< for a start or a wait: the index of the call in the step
};
struct TracedStep {
  double seconds = 0;
  std::vector<Interval> compute;  ///< united
  std::vector<TracedCall> calls;  ///< in the order in which they begin
  /// The events, if the trace says which waited for which; empty: that is concluded from the times.
  std::vector<ReplayEvent> events{};
};
struct StepTrace {
  std::vector<TracedStep> steps;
  std::string device;      ///< "cpu" or "cuda"; empty: unknown
  std::int64_t ranks = 0;  ///< ranks of the whole job; 0: unknown
  bool timed = true;       ///< false: the trace has no times of collectives, so its steps have no length
};

/// The parts of a step [s], as in `Decomposition`.
struct TracedParts {
  double step = 0, compute = 0, communication = 0, exposed = 0, overlap = 0;
};
/// The parts of a step, over all calls and computation within it. Cost: O(n log n).
TracedParts parts_of(const TracedStep&);
/// A text that says what a row is made from, the same in a trace's own row and in its replays:
/// "trace:steps=3,calls=9,bytes=8036472".
std::string trace_text(const StepTrace&);

}  // namespace gradmeter::dataparallel
