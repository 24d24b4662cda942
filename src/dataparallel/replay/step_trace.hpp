// What one rank of some training did, step by step: when it computed, and which collectives it made when. Importers
// read traces of other programs as such values; `Replay` runs them on any fabric.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "core/element.hpp"
#include "dataparallel/decorators/intervals.hpp"

namespace gradmeter::dataparallel {

/// Times count from the begin of its step [s].
struct TracedCall {
  std::string collective;   ///< as result files name it: "allreduce"
  std::uint64_t bytes = 0;  ///< of the whole buffer; 0: the trace does not say it
  core::Element element = core::Element::f32;
  std::int64_t ranks = 0;    ///< of its group; 0: the trace does not say it
  Interval when;             ///< may end after its step
  std::string op = {};       ///< of a reduction; empty: the trace does not say it
  std::string problem = {};  ///< what it is besides, as result files name it: "root=3"; empty: nothing
};
/// What a rank does next in a replayed step.
struct ReplayEvent {
  enum class Kind : std::uint8_t { compute, start, wait };
  Kind kind = Kind::compute;
  double seconds = 0;    ///< of a computation
  std::size_t call = 0;  ///< of a start or a wait: its place in the step
};
struct TracedStep {
  double seconds = 0;
  std::vector<Interval> compute;      ///< united
  std::vector<TracedCall> calls;      ///< in the order of their begins
  std::vector<ReplayEvent> events{};  ///< where the trace says what waited for what; empty: it follows from the times
};
struct StepTrace {
  std::vector<TracedStep> steps;
  std::string device;      ///< "cpu" or "cuda"; empty: the trace does not say it
  std::int64_t ranks = 0;  ///< of the whole job; 0: the trace does not say it
  bool timed = true;       ///< false: it does not say how long collectives took, so its steps have no length
};

/// The parts of a step [s], as in `Decomposition`.
struct TracedParts {
  double step = 0, compute = 0, communication = 0, exposed = 0, overlap = 0;
};
/// Of all calls and computation within the step. Cost: O(n log n).
TracedParts parts_of(const TracedStep&);
/// "trace:steps=3,calls=9,bytes=8036472": what a row is of, in a trace's own row and in a replay's.
std::string trace_text(const StepTrace&);

}  // namespace gradmeter::dataparallel
