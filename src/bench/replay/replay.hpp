// SPDX-License-Identifier: Apache-2.0
// Measures the steps of another program's trace on these ranks.
#pragma once
#include <functional>

#include "bench/engine/session.hpp"
#include "core/result.hpp"
#include "core/stopping_rule.hpp"
#include "core/table.hpp"
#include "dataparallel/replay/replay.hpp"
#include "dataparallel/replay/step_trace.hpp"
#include "report/cells.hpp"

namespace gradmeter::bench {

struct ReplayOptions {
  dataparallel::StepTrace trace;
  bool progress_thread = false;  ///< true: a thread advances collectives while the rank computes
  dataparallel::ReplayedComputation computation = dataparallel::ReplayedComputation::spin;
  std::uint64_t seed = 1;  ///< seed of the data that is checked
  core::StoppingRule rule;
  std::function<bool()> is_over = {};  ///< returns true if a signal is pending, to end a long computation
  /// The number of threads of one rank that want a core at the same time.
  int busy_threads() const { return progress_thread && computation == dataparallel::ReplayedComputation::spin ? 2 : 1; }
};

/// Returns the row of the trace's mean step: the time of the slowest rank, the parts of the step on that rank, and the
/// trace's own step as the baseline. Collectives are checked on known data before and after the measurement.
/// Collective over the session's world.
/// Cost: the steps of the trace, repeated until the stopping rule is met. Errors: UsageError for a trace that cannot be
/// replayed; Interrupted.
core::Point run_replay(Session&, const ReplayOptions&);

/// One table for each trace: the trace's own step and its replays, with their parts.
std::string replay_tables(std::span<const core::Point>, std::size_t width = core::any_width);
std::string replay_legend(report::Legend);
const report::CsvColumns& replay_csv();

}  // namespace gradmeter::bench
