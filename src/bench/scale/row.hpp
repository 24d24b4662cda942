// SPDX-License-Identifier: Apache-2.0
// Turns what was measured into a row of the result: times, bytes, limit, and the comparison with baseline and control.
#pragma once
#include "bench/engine/machine_state.hpp"
#include "bench/scale/causes.hpp"
#include "bench/scale/plan.hpp"
#include "bench/train/limits.hpp"
#include "bench/train/metrics.hpp"
#include "bench/train/training.hpp"

namespace gradmeter::bench {

/// What a finished point hands over.
struct ScaleFindings {
  const ScalePoint& point;
  const Training& training;
  const Measurement& measurement;
  const StepBound& bound;
  const Noise& noise;
  const TrainingTotals& totals;
  const StepSamples& steps;
  bool oversubscribed;
  UsedBlocks blocks = {};
  std::optional<double> error = {};  ///< of a sum exchanged with a codec, relative and squared
};

/// Times, parts, bytes, limit, noise. Status wrong when bytes sent differ from the schedule's messages.
void fill_row(const ScaleFindings&, core::Point&);

/// A point that others are compared with: its row and its blocks.
struct Reference {
  const core::Point& row;
  const Measurement& measured;
};
/// Null: not measured in this turn, so its figures stay empty.
struct References {
  const Reference* base = nullptr;     ///< one rank's `independent`: equal batch per rank (weak) or in all (strong)
  const Reference* control = nullptr;  ///< `independent` at the same factors
  const Reference* node = nullptr;     ///< `independent` on the ranks of one full node
  const Reference* alone = nullptr;    ///< the same strategy on one rank
};
/// Efficiency, where lost time went and what bound the point. Above 100 % in weak scaling by more than its interval it
/// is mistrusted: no rank can be faster than one alone at the same work. Above 105 % without an interval it is too, and
/// without an interval there is no verdict.
void compare_row(const ScalePoint&, const References&, const Measurement&, core::Point&);

}  // namespace gradmeter::bench
