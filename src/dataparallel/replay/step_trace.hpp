// SPDX-License-Identifier: Apache-2.0
// The record of what one rank of some training did, step by step: when it computed, and which collectives it made when.
// Importers read traces of other programs as such values; `Replay` runs them on any fabric.
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
  std::uint64_t bytes = 0;  ///< bytes of the whole buffer; 0: the trace does not say it
  core::Element element = core::Element::f32;
  std::int64_t ranks = 0;    ///< ranks of its group; 0: the trace does not say it
  Interval when;             ///< may end after its step
  std::string op = {};       ///< operation of a reduction; empty: the trace does not say it
  std::string problem = {};  ///< further facts about the call, as result files name them: "root=3"; empty: none
};
/// The next thing that a rank does in a replayed step.
struct ReplayEvent {
  enum class Kind : std::uint8_t { compute, start, wait };
  Kind kind = Kind::compute;
  double seconds = 0;    ///< length of a computation [s]
  std::size_t call = 0;  ///< for a start or a wait: the call's place in the step
};
struct TracedStep {
  double seconds = 0;
  std::vector<Interval> compute;  ///< united
  std::vector<TracedCall> calls;  ///< in the order of their begins
  /// The events, where the trace says which of them waited for which; empty: that follows from the times.
  std::vector<ReplayEvent> events{};
};
struct StepTrace {
  std::vector<TracedStep> steps;
  std::string device;      ///< "cpu" or "cuda"; empty: the trace does not say it
  std::int64_t ranks = 0;  ///< ranks of the whole job; 0: the trace does not say it
  bool timed = true;       ///< false: the trace does not say how long collectives took, so its steps have no length
};

/// The parts of a step [s], as in `Decomposition`.
struct TracedParts {
  double step = 0, compute = 0, communication = 0, exposed = 0, overlap = 0;
};
/// The parts of a step, over all calls and computation within it. Cost: O(n log n).
TracedParts parts_of(const TracedStep&);
/// A text that says what a row is made from: "trace:steps=3,calls=9,bytes=8036472", in a trace's own row and in a
/// replay's.
std::string trace_text(const StepTrace&);

}  // namespace gradmeter::dataparallel
