// Repeats a step on all ranks until its time is known well enough. Knows samples, not topics.
#pragma once
#include <functional>
#include <vector>

#include "bench/session.hpp"
#include "core/statistics.hpp"
#include "dataparallel/probe.hpp"
#include "runtime/cadence.hpp"

namespace gradmeter::bench {

/// One iteration. Its time is the longest of all ranks; the parts are those of that slowest rank.
struct StepSample {
  dataparallel::Decomposition slowest;
  std::uint64_t bytes_sent_max = 0, bytes_sent_total = 0, bytes_between_nodes = 0, bytes_due_total = 0;
  bool bytes_known = true, bytes_right = true;  ///< right: every rank sent what its schedule's messages add up to
};

struct MeasureOptions {
  runtime::Cadence cadence = runtime::Cadence::barrier;
  core::StoppingRule rule;
  std::size_t warmup_min = 5;     ///< steps, never zero
  core::Seconds warmup_budget{1};
};

struct Measurement {
  std::vector<StepSample> samples;
  core::Stop stop = core::Stop::none;
  double warmup_s = 0;            ///< first-use costs: connections, page faults; kept out of the samples
  std::size_t warmup_steps = 0;
  std::size_t dropped = 0;        ///< iterations that missed their window
  bool skew_known = true;         ///< false: clocks are less sure of each other than the skew is long

  std::vector<double> times() const;
  /// Median over iterations of one part.
  double median_of(double dataparallel::Decomposition::*part) const;
};

/// Collective over `c`. `step` runs one iteration on this rank and gives its record.
/// Warm-up lasts until two groups of steps in a row have medians within 5 %, or its budget ends.
/// Errors: Interrupted when any rank has seen a signal.
Measurement measure_steps(Session&, const runtime::Communicator& c, runtime::ClockOffset, const MeasureOptions&,
                          const std::function<const dataparallel::StepRecord&()>& step);

}  // namespace gradmeter::bench
