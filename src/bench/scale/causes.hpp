// The causes of time beyond one rank's step: a part for each cause, from blocks that were taken in turn.
#pragma once
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bench/scale/measure.hpp"

namespace gradmeter::bench {

/// Median over blocks, with its 95 % interval; NaN where there is none.
struct Estimate {
  double value = std::numeric_limits<double>::quiet_NaN();
  double low = std::numeric_limits<double>::quiet_NaN(), high = std::numeric_limits<double>::quiet_NaN();
};
Estimate estimate(std::span<const double> blocks);

/// Blocks of three points that were taken in the same turns: block i of each side by side.
struct ComparedBlocks {
  std::vector<const StepBlock*> base;     ///< one rank's `independent`
  std::vector<const StepBlock*> control;  ///< `independent` at the point's ranks
  std::vector<const StepBlock*> point;
  double ideal = 1;  ///< the divisor of the base's times: 1, or P in strong scaling
  bool lock_step = true;
};
/// The blocks that all three have, by the round in which they were taken.
ComparedBlocks pair_blocks(const Measurement& base, const Measurement& control, const Measurement& point);

/// lost = contention + straggle + interference + wait + wire + other [s], on the rank r* that computed longest in each
/// block. The others' wait for r* is the same time seen from their side, and no part.
struct Causes {
  double lost = 0;               ///< step − base
  Estimate contention;           ///< control's compute of the median rank (the lower one of two) − the base's
  Estimate straggle;             ///< control's compute of r* − that median
  Estimate interference;         ///< compute of r* − its own under the control
  Estimate wait;                 ///< for ranks that had not begun the call
  Estimate wire;                 ///< the rest of exposed time; without lock step the workers' handling of messages
  Estimate other;                ///< outside kernels and calls, beyond the base's: update, copies, bookkeeping
  Estimate exposed;              ///< step − control's step
  Estimate speed;                ///< base ÷ step: efficiency in weak scaling
  std::optional<int> straggler;  ///< a rank whose control compute stands out in most blocks
};
/// step_s, base_s, control_s: as the rows have them. In each block the parts add up, but their medians need not. The
/// difference is divided among the parts in proportion to the squares of their intervals' widths.
Causes find_causes(const ComparedBlocks&, double step_s, double base_s, double control_s);

/// One word: compute (under a twentieth of the step was lost), or the part that is larger than all others by more than
/// the intervals: memory or cores (contention), straggle, interference, wait, wire, other; undecided where intervals
/// overlap, or where the machine's unsteadiness may explain the difference.
/// `unsteady`: the share of a step by which the machine's state made steps longer or shorter, 0 where it was steady.
std::string bound_by(const Causes&, double step_s, bool oversubscribed, double unsteady);

}  // namespace gradmeter::bench
