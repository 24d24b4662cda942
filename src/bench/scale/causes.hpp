// The causes of time beyond one rank's step: a part for each cause, from blocks that were taken in turn.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "bench/scale/measure.hpp"

namespace gradmeter::bench {

/// Median over blocks with its 95 % interval. Nothing may be concluded from a figure whose interval is unknown: it is
/// no zero and equals no other.
struct Estimate {
  struct Interval {
    double low, high;
  };
  double value = std::numeric_limits<double>::quiet_NaN();
  std::optional<Interval> ci95 = {};
};
Estimate estimate(std::span<const double> blocks);

/// Blocks of three points that were taken in the same turns: block i of each side by side.
struct ComparedBlocks {
  std::vector<const StepBlock*> base;     ///< one rank's `independent`
  std::vector<const StepBlock*> control;  ///< `independent` at the point's ranks
  std::vector<const StepBlock*> point;
  double ideal = 1;  ///< the divisor of the base's times: 1, or P in strong scaling
  bool lock_step = true;
  bool wait_known = true;  ///< false: clocks cannot tell wait from wire, which then has both
};
/// The blocks that all three have, by the round in which they were taken.
ComparedBlocks pair_blocks(const Measurement& base, const Measurement& control, const Measurement& point);

/// The parts of lost time, in the order of Causes::parts.
enum class Cause : std::uint8_t { contention, straggle, interference, wait, wire, other };
inline constexpr std::size_t cause_count = 6;

/// The times of one block that its parts are differences of [s]. The base's are divided by ComparedBlocks::ideal.
struct ComparedTimes {
  double base_compute = 0, base_rest = 0;
  double median_compute = 0;                         ///< the control's, of the median rank (of two the faster one)
  double own_compute = 0;                            ///< the control's, of r*; without lock step the workers' mean
  double compute = 0, wait = 0, wire = 0, rest = 0;  ///< the point's: its kernels and what is outside them
  std::array<double, cause_count> parts() const;
  /// The step beyond the base: the sum of the parts.
  double lost() const;
};
ComparedTimes times_of(const ComparedBlocks&, std::size_t block);

/// lost = contention + straggle + interference + wait + wire + other [s], on the rank r* that computed longest in each
/// block. The others' wait for r* is the same time seen from their side, and no part.
struct Causes {
  double lost = 0;                    ///< step − base
  Estimate contention = {};           ///< control's compute of the median rank (the lower one of two) − the base's
  Estimate straggle = {};             ///< control's compute of r* − that median
  Estimate interference = {};         ///< compute of r* − its own under the control
  Estimate wait = {};                 ///< for ranks that had not begun the call
  Estimate wire = {};                 ///< the rest of exposed time; without lock step the workers' handling of messages
  Estimate other = {};                ///< outside kernels and calls, beyond the base's: update, copies, bookkeeping
  Estimate exposed = {};              ///< step − control's step
  Estimate speed = {};                ///< base ÷ step: efficiency in weak scaling
  std::optional<int> straggler = {};  ///< a rank whose control compute stands out in most blocks
  std::array<Estimate*, cause_count> parts() { return {&contention, &straggle, &interference, &wait, &wire, &other}; }
};
/// step_s, base_s, control_s: as the rows have them. In each block the parts add up, but their medians need not. The
/// difference is divided among the parts in proportion to the squares of their intervals' widths.
Causes find_causes(const ComparedBlocks&, double step_s, double base_s, double control_s);

}  // namespace gradmeter::bench
