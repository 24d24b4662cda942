// A step decomposed by interval arithmetic: computation, communication, and the part of it that was exposed.
#pragma once
#include <span>
#include <string_view>
#include <vector>

#include "dataparallel/decorators/intervals.hpp"
#include "dataparallel/fabric.hpp"

namespace gradmeter::dataparallel {

/// One call of one rank in one step.
struct CallRecord {
  std::string_view label;
  Completion completion;
};
/// The computations of a step from this one on, up to the next mark's, are of this layer (`Queue::enter_layer`).
struct LayerMark {
  int layer = 0;
  std::size_t first = 0;  ///< so many computations were submitted before
};
/// What one rank did in one step.
struct StepRecord {
  Interval step;
  ComputeLog computations;
  std::vector<CallRecord> calls;
  ComputeLog waits = {};  ///< of the worker, for a call or a message: labelled by what it waited for
  std::vector<LayerMark> layers = {};
  std::size_t submitted = 0;  ///< computations
};

/// One call's times in a step [s], from the begin of the step.
struct CallTimes {
  double posted = 0, started = 0, finished = 0;
  double wire = 0;     ///< since the last rank had begun the call; not known: since this one had
  double exposed = 0;  ///< outside computation and outside all calls before it: adds up to the step's
};

/// The parts of a step [s]. compute + exposed + idle = step, where idle is neither computation nor a call.
struct Decomposition {
  double step = 0, compute = 0;
  double communication = 0;  ///< the union of the calls, from start to finish
  double exposed = 0;        ///< communication outside computation: union − compute
  double overlap = 0;        ///< compute + communication − union
  double skew = 0;           ///< of the exposed part, waiting for peers that had not started the call yet
  std::uint64_t bytes_sent = 0, bytes_between_nodes = 0, bytes_due = 0;
  bool bytes_known = true;  ///< false: a vendor's call, whose bytes are not counted, was among them
  double encode = 0, decode = 0;
  double waited = 0;   ///< the worker's waits
  double handled = 0;  ///< its exchanges outside kernels and waits: posting, taking, copying
  std::vector<CallTimes> calls = {};
};

/// `last_start[i]`: when the last rank started call i, in this rank's clock; empty: skew is not known (0).
Decomposition decompose(const StepRecord&, std::span<const double> last_start);

}  // namespace gradmeter::dataparallel
