// The steps of another program's trace on these ranks, measured.
#pragma once
#include <functional>

#include "bench/engine/session.hpp"
#include "core/result.hpp"
#include "core/statistics.hpp"
#include "dataparallel/replay/step_trace.hpp"

namespace gradmeter::bench {

struct ReplayOptions {
  dataparallel::StepTrace trace;
  bool progress_thread = false;  ///< collectives move while the rank is busy
  std::uint64_t seed = 1;        ///< of the data that is checked
  core::StoppingRule rule;
  std::function<bool()> is_over = {};  ///< ends a computation that lasts: a signal is pending
};

/// The row of the trace's mean step: time of the slowest rank, its parts on that rank, and the trace's own step as the
/// baseline. Collectives are checked on known data before and after. Collective over the session's world.
/// Cost: the steps of the trace, until the rule ends. Errors: UsageError for a trace that cannot be replayed;
/// Interrupted.
core::Point run_replay(Session&, const ReplayOptions&);

}  // namespace gradmeter::bench
