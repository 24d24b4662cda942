// SPDX-License-Identifier: Apache-2.0
// The causes of time beyond one rank's step: a part for each cause, from blocks that were taken in turn.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
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
  double median_compute = 0;            ///< the control's, of the median rank (of two the faster one)
  double own_compute = 0;               ///< the control's, of r*; without lock step the workers' mean
  double compute = 0;                   ///< the point's, in kernels that the control has too
  double wait = 0, wire = 0, rest = 0;  ///< the point's, beside these kernels
  std::array<double, cause_count> parts() const;
  /// The step beyond the base: the sum of the parts.
  double lost() const;
};
ComparedTimes times_of(const ComparedBlocks&, std::size_t block);

/// lost = contention + straggle + interference + wait + wire + other [s], on the rank r* that computed longest in each
/// block. The others' wait for r* is the same time seen from their side, and no part.
struct Causes {
  double lost = 0;             ///< step − base
  Estimate contention = {};    ///< control's compute of the median rank (the lower one of two) − the base's
  Estimate straggle = {};      ///< control's compute of r* − that median
  Estimate interference = {};  ///< of kernels that the control has too: compute of r* − its own there; 0 on one rank
  Estimate wait = {};          ///< for ranks that had not begun the call
  Estimate wire = {};          ///< the rest of exposed time; without lock step the workers' handling of messages
  Estimate other = {};         ///< beyond the base's outside kernels and calls, and kernels that only the point has
  Estimate exposed = {};       ///< step − control's step
  Estimate speed = {};         ///< base ÷ step: efficiency in weak scaling
  std::optional<int> straggler = {};  ///< a rank whose control compute stands out in most blocks
  std::array<Estimate*, cause_count> parts() { return {&contention, &straggle, &interference, &wait, &wire, &other}; }
};
/// step_s, base_s, control_s: as the rows have them. In each block the parts add up, but their medians need not. The
/// difference is divided among the parts in proportion to the squares of their intervals' widths.
Causes find_causes(const ComparedBlocks&, double step_s, double base_s, double control_s);

// What bound a step, with the probability of being right, from blocks that are resampled.

/// The share of each point's times that the machine's state may account for: 0 where it was steady.
struct Disturbance {
  double base = 0, control = 0, point = 0;
};

struct Verdict {
  /// compute: nothing was lost beyond `noise_s`. Else the largest part of lost time: memory or cores (contention),
  /// straggle, interference, wait, wire, other. undecided: none of these in two thirds of the resamples, or the
  /// machine's state may explain all of a loss that the blocks show.
  std::string bound_by = {};
  double probability = 0;  ///< of `bound_by`; of undecided, of the likeliest answer
  double noise_s = 0;      ///< losses up to this are "nothing"
  struct Candidate {
    std::string bound_by;
    double probability;
  };
  std::vector<Candidate> candidates = {};  ///< all answers of at least 1 %, the likeliest first
};

/// "wire 55 %, straggle 40 %".
std::string to_text(const std::vector<Verdict::Candidate>&);

/// Draws the blocks anew, with replacement, a thousand times. In each resample each measured time may also hold up to
/// the machine's share, drawn evenly. The answer of a resample is its largest part, or compute where less was lost than
/// a twentieth of the step, or than the noise of the blocks if that is more (at most 15 % of the step). Where the
/// median rank computes faster than the baseline beyond that noise, time is lost against it: the baseline ran on a slow
/// rank. The same blocks give the same verdict. Nothing: the figures have no interval, so nothing may be concluded.
/// Cost: O(1000 × blocks).
std::optional<Verdict> judge(const ComparedBlocks&, Causes, double step_s, bool oversubscribed, const Disturbance&);

}  // namespace gradmeter::bench
