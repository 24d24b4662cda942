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

/// The results of a finished point, from which its row is made.
struct PointResults {
  const ScalePoint& point;
  const Training& training;
  const Measurement& measurement;
  const StepBound& bound;
  const MachineNoise& machine_noise;
  const TrainingTotals& totals;
  const StepSamples& steps;
  bool oversubscribed;
  UsedBlocks used_blocks = {};
  std::optional<double> error = {};  ///< relative squared error of a sum exchanged with a codec; empty: none
};

/// Fills in the times of the step and of its parts, the bytes, the limit, and the machine's noise. The status becomes
/// `wrong` if the bytes sent differ from the forecast or from the schedule's messages.
void fill_row(const PointResults&, core::Point&);

/// A point that others are compared with: its row and its blocks.
struct Reference {
  const core::Point& row;
  const Measurement& measured;
};
/// The points that a row is compared with. Null: that point was not measured in turns with the row, and figures that
/// need it stay empty.
struct References {
  const Reference* base = nullptr;      ///< the point's `baseline_of`
  const Reference* control = nullptr;   ///< `independent` at the same factors
  const Reference* one_node = nullptr;  ///< `independent` on the ranks of one full node
  const Reference* one_rank = nullptr;  ///< the same strategy on one rank
};
/// Fills in the efficiency, the parts of lost time, and the verdict, which names the cause that made the point slow.
/// With too few blocks for an interval there is no verdict. In weak scaling no rank can be faster than one alone at the
/// same work, so a row is mistrusted if the whole interval of its efficiency is above 100 %, or, if it has no interval,
/// if its efficiency is above 105 %.
void compare_row(const ScalePoint&, const References&, const Measurement&, core::Point&);

}  // namespace gradmeter::bench
