// Turns what was measured into a row of the result: times, bytes, limit, and the comparison with baseline and control.
#pragma once
#include "bench/limits.hpp"
#include "bench/measure.hpp"
#include "bench/noise_tally.hpp"
#include "bench/scale_plan.hpp"
#include "bench/strategy_row.hpp"
#include "bench/training.hpp"

namespace gradmeter::bench {

/// What a finished contestant hands over.
struct ScaleFindings {
  const ScalePoint& point;
  const Training& training;
  const Measurement& measurement;
  const Limits& limits;
  const Noise& noise;
  const TrainingTotals& totals;
  const StepTally& tally;
  bool oversubscribed;
  std::optional<double> error = {};  ///< of a sum exchanged with a codec, relative and squared
};

/// Times, parts, bytes, limit, noise. Status wrong when bytes sent differ from the schedule's messages.
void fill_row(const ScaleFindings&, core::Point&);

/// Efficiency and loss against the one-rank point of the same strategy (`baseline`, may be the row itself) and against
/// `independent` at the same factors (`control`). Null: not measured in this file, so the figures stay out.
void compare_row(const ScalePoint&, const core::Point* baseline, const core::Point* control, core::Point&);

}  // namespace gradmeter::bench
