// SPDX-License-Identifier: Apache-2.0
// Divides a step's lost time (by which it exceeds a step of one rank) among causes, from blocks measured in turns.
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

/// A figure's median over blocks, with its 95 % interval. A figure whose interval is unknown proves nothing, not even
/// that it is zero or equals another figure.
struct Estimate {
  struct Interval {
    double low, high;
  };
  double value = std::numeric_limits<double>::quiet_NaN();
  std::optional<Interval> ci95 = {};
};
Estimate estimate(std::span<const double> blocks);

/// The blocks of three points: block i of each was taken in the same turn.
struct ComparedBlocks {
  std::vector<const StepBlock*> base;     ///< strategy `independent` on one rank
  std::vector<const StepBlock*> control;  ///< strategy `independent` on the point's ranks
  std::vector<const StepBlock*> point;
  /// The divisor of the base's times: the number of ranks that share the base's work. In weak scaling these are the
  /// ranks of a replica (1 without a mesh), in strong scaling all ranks.
  double ideal_speedup = 1;
  bool lock_step = true;   ///< StepMeter::Source::lock_step of the point
  bool wait_known = true;  ///< false: the clocks cannot tell `wait` from `wire` (see Causes), so `wire` holds both
  /// True if each rank does the base's whole work. Only then does a rank that computes faster than the base show that
  /// the base was slow: a rank with a part of the work may be faster because the part fits its caches.
  bool has_equal_work() const { return ideal_speedup == 1; }
};
/// Pairs the blocks of those rounds in which all three points have one.
ComparedBlocks pair_blocks(const Measurement& base, const Measurement& control, const Measurement& point);

/// The parts of lost time, in the order of Causes::parts.
enum class Cause : std::uint8_t { contention, straggle, interference, wait, wire, other };
inline constexpr std::size_t cause_count = 6;

/// The times of one block [s], from which the parts of its lost time are computed. Base times are divided by
/// ComparedBlocks::ideal_speedup.
struct ComparedTimes {
  double base_compute = 0, base_rest = 0;  ///< compute time of the base, and the rest of its step
  double median_compute = 0;               ///< compute time of the control's median rank (the faster of the middle two)
  /// Compute time of the control on the rank that computed longest in the point's block; without lock step, the mean
  /// over the ranks that train at the point, weighted by their steps per second there, as in StepParts.
  double control_compute = 0;
  double compute = 0;                   ///< compute time of the point, in kernels that the control has too
  double wait = 0, wire = 0, rest = 0;  ///< times of the point; `rest` is its step − compute − wait − wire
  std::array<double, cause_count> parts() const;
  /// The point's step − the base's step, which is the sum of the parts.
  double lost() const;
};
ComparedTimes times_of(const ComparedBlocks&, std::size_t block);

/// lost = contention + straggle + interference + wait + wire + other [s], on r*, the rank that computed longest in the
/// block (without lock step: means over workers). Waits of other ranks for r* do not count, since r* computes meanwhile
/// and its compute time counts. Base times are divided by ComparedBlocks::ideal_speedup.
struct Causes {
  double lost = 0;  ///< step − base
  /// Compute of the control's median rank (the faster of the middle two) − compute of the base.
  Estimate contention = {};
  Estimate straggle = {};  ///< compute of r* in the control − compute of the control's median rank
  /// Compute of r* in kernels that the control has too − compute of r* in the control; 0 on one rank.
  Estimate interference = {};
  Estimate wait = {};  ///< time in which r* waits for ranks that have not begun a call
  /// Exposed communication (StepParts::exposed) − wait; without lock step, the time in which workers handle messages.
  Estimate wire = {};
  /// Time outside kernels and calls − the same of the base, plus the time of kernels that only the point has.
  Estimate other = {};
  Estimate exposed = {};  ///< step − control's step
  Estimate speed = {};    ///< base ÷ step: the efficiency, if every rank trains
  /// The rank that computes longest in at least two thirds of the control's blocks, if `straggle` is at least 5 % of
  /// the base's step and its whole interval is above zero; else empty.
  std::optional<int> straggler = {};
  std::array<Estimate*, cause_count> parts() { return {&contention, &straggle, &interference, &wait, &wire, &other}; }
};
/// step_s, base_s, control_s: the times in the rows. The parts add up to the lost time in each block, but their medians
/// need not add up to `lost`. The difference is divided among the parts in proportion to the squares of the widths of
/// their intervals.
Causes find_causes(const ComparedBlocks&, double step_s, double base_s, double control_s);

// The cause that made a step slow, with the probability that it is the right one, from resampled blocks.

/// For each of the three points, the largest share of its times that the machine's state may have added: 0 if the
/// machine was steady.
struct Disturbance {
  double base = 0, control = 0, point = 0;
};

struct Verdict {
  /// `compute` where less than `noise_s` was lost. Else the largest part of the lost time: contention (called `memory`,
  /// or `cores` if the cores are oversubscribed), straggle, interference, wait, wire, other. `undecided` where no cause
  /// wins two thirds of the resamples, where the one that wins is not the largest part in the row, or where the
  /// machine's state may explain all of the loss.
  std::string bound_by = {};
  double probability = 0;  ///< probability of `bound_by`; if that is undecided, of the most frequent cause
  double noise_s = 0;      ///< losses up to this count as zero [s]
  struct Candidate {
    std::string bound_by;
    double probability;
  };
  std::vector<Candidate> candidates = {};  ///< all causes with a probability of at least 1 %, the likeliest first
};

/// "wire 55 %, straggle 40 %".
std::string to_text(const std::vector<Verdict::Candidate>&);

/// Resamples the blocks a thousand times, with replacement. In each resample, the largest part of the lost time is the
/// cause. To allow for the machine's state, a random share of each time is subtracted, as time that the machine may
/// have added; the share is at most the `Disturbance` of the time's point. The cause is `compute` where less was lost
/// than a twentieth of the step, or than the noise of the blocks if that is more (at most 15 % of the step). Where the
/// median rank computes faster than the baseline at equal work by more than that noise, the baseline ran on a slow
/// rank, and the difference is added to the lost time. The same blocks give the same verdict. There is no verdict if
/// Causes::speed has no interval. Cost: O(1000 × blocks).
std::optional<Verdict> judge(const ComparedBlocks&, Causes, double step_s, bool oversubscribed, const Disturbance&);

}  // namespace gradmeter::bench
