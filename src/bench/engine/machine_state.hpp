// SPDX-License-Identifier: Apache-2.0
// The canary: a fixed workload whose time shows the state of the machine. Other work on the host (neighbours) takes
// caches, memory bandwidth and clock, not only processor time, and no counter shows how much of these it takes.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bench/engine/session.hpp"
#include "core/result.hpp"
#include "core/statistics.hpp"
#include "kernels/gemm/gemm.hpp"
#include "kernels/host/memory.hpp"
#include "runtime/communicator.hpp"
#include "runtime/cuda/nvml.hpp"
#include "runtime/host/noise.hpp"

namespace gradmeter::bench {

/// The times of the canary's rounds, and what they say about the state of the machine.
class CanaryTimes {
 public:
  /// A round is disturbed if it takes more than this many times the best round's time.
  static constexpr double disturbance = 1.1;

  void add(double seconds) { times_.push_back(seconds); }
  std::size_t rounds() const { return times_.size(); }
  /// The 10th percentile of the times of all rounds so far; with fewer than ten rounds the shortest time. The shortest
  /// of very many rounds is a matter of luck, and would mark all others as disturbed. Cost: O(rounds).
  double best() const;
  bool disturbed_at(std::size_t round, double best) const { return times_.at(round) > disturbance * best; }
  /// `best()` divided by the median time of the rounds from `first` on, at most 1; 1 where no such round was run.
  double steadiness(std::size_t first = 0) const;

 private:
  std::vector<double> times_;
};

/// The canary's work, on one thread of each rank: a product of two fp32 matrices of 128 × 128 (192 KiB with the result;
/// its time depends on the core's clock, arithmetic units and L2), and a copy of 256 KiB whose source has been flushed
/// from all caches, so that each line comes from memory. Each takes some tens of microseconds, and shows a neighbour's
/// load. A round runs the work five times on all ranks at once. The median of the five is a rank's time, so that one
/// interruption (with many ranks there is always one) does not count as the machine's state.
/// Cost: about a millisecond a round. A round displaces under 0.8 MiB of the measured program's data from each core's
/// L2 and from its share of the last-level cache. The untimed iterations before each block (RoundOptions::discarded)
/// load that data again.
class Canary {
 public:
  /// Collective over `c`, as is `round`; `c` must outlive it. Ranks of the world outside `c` take no part.
  /// Errors: BackendError when oneDNN fails.
  Canary(Session&, const runtime::Communicator& c);
  /// Records the longest of all ranks' times [s], and returns it.
  double round();
  const CanaryTimes& times() const { return times_; }

 private:
  double run_once();
  double slowest_median();

  Session& session_;
  const runtime::Communicator& c_;
  std::unique_ptr<kernels::Gemm> product_;
  kernels::AlignedVector<float> a_, b_, result_;
  kernels::AlignedVector<std::byte> from_, to_;
  CanaryTimes times_;
};

// The code below finds how steady the machine was while points took turns. Here a turn is one rotation of `take_turns`
// (sweep.hpp), in which each point that still needs samples takes one block. The canary runs between turns. After each
// turn, the latest canary round decides whether the turn counts as disturbed, with all blocks in it.

struct MachineState {
  std::vector<std::size_t> disturbed = {};  ///< indices of disturbed turns, ascending
  std::size_t turns = 0;
  double steadiness = 1;
  /// The number of disturbed turns among the first `n`. `n` is the number of turns in which one point took part; it may
  /// be less than `turns`, since a point with an exact number of samples ends before the others.
  std::size_t disturbed_of(std::size_t n) const;
};

/// The blocks that a point's figures come from.
struct UsedBlocks {
  std::size_t used = 0;
  std::size_t disturbed = 0;  ///< number of used blocks that were taken in disturbed turns
  std::size_t left_out = 0;   ///< number of blocks of disturbed turns that are not used
  double steadiness = 1;
  /// `taken`: the number of all blocks, taken in `turns` turns; `used`: the number of those that the figures come from.
  static UsedBlocks of(const MachineState&, std::size_t turns, std::size_t taken, std::size_t used);
};
void fill_blocks(const UsedBlocks&, core::Metrics&);

/// The machine's state in some turns. first: the number of canary rounds that were run before the first turn. round_of:
/// for each turn, the index of the canary round that decides its state, which is the latest when the turn has ended.
MachineState state_of(const CanaryTimes&, std::size_t first, std::span<const std::size_t> round_of);

/// The turns in which the blocks of one point were taken; a turn may have no block.
class BlockTurns {
 public:
  /// To be called after each turn, with the number of all blocks taken so far.
  void note(std::size_t blocks);
  std::size_t count() const { return turns_; }
  /// The times without the blocks of disturbed turns, if enough blocks for a 95 % interval remain; else all times.
  core::Blocks undisturbed(const core::Blocks&, const MachineState&) const;

 private:
  std::vector<std::size_t> turn_of_;  ///< the turn of each block
  std::size_t turns_ = 0;
};

/// Does work that belongs to no point. It is done in the first turn. In a later turn it is done only if, so far, it has
/// taken at most `share` of the time since this object was made.
class PeriodicWork {
 public:
  PeriodicWork(const runtime::Communicator& world, double share);
  /// Does the work when its time has come. Collective over the world, once a turn. Returns whether it was done.
  bool run_if_due(const std::function<void()>& work);

 private:
  const runtime::Communicator& world_;
  double share_, begin_;
  double spent_s_ = 0;
  bool begun_ = false;
};

/// Runs canary rounds between the turns of some points. A round is run only if all rounds so far have taken at most a
/// twentieth of the elapsed time, so one round may decide for several short turns.
class MachineMonitor {
 public:
  /// Collective over the world, as are all calls but `state`. canary: null on ranks that take no part. budget: the time
  /// for all points; after it, disturbed turns are no reason to continue.
  MachineMonitor(Canary* canary, const runtime::Communicator& world, core::Seconds budget);

  /// To be called after each turn: runs a canary round if one is due.
  void round();
  MachineState state() const;
  /// True once the budget has passed and at least `least_turns` turns were taken.
  bool is_over(std::size_t least_turns = core::fewest_blocks) const;
  /// True once `blocks` undisturbed turns were taken, or 3 · `blocks` turns in all, or the budget has passed.
  bool has_enough(std::size_t blocks) const;

 private:
  Canary* canary_;
  const runtime::Communicator& world_;
  PeriodicWork canary_work_;
  double end_;                         ///< end of the budget by the host clock [s]
  std::size_t first_round_;            ///< number of canary rounds before the first turn
  std::vector<std::size_t> round_of_;  ///< for each turn, the canary round that decides its state
};

// The noise while a point was measured, over its rounds: other processes' use of the machine, and limits on its GPU's
// clock.

/// A share is NaN if the system does not tell it, or if less than 0.1 s were measured, since the system's clock ticks
/// and time slices are some milliseconds long.
struct MachineNoise {
  /// The largest share, over nodes, of (elapsed time × cores) that the hypervisor took.
  double steal_share = 0;
  /// The largest share, over ranks, of the elapsed time in which a thread of the rank was ready but not running.
  double run_delay_share = 0;
  std::string busy_host = {};  ///< host of the rank with that delay; empty: not known, or there is only one rank
  std::int64_t involuntary_switches = 0;
  double frequency_hz = 0;  ///< the processor's clock at the end of the last round; 0: not known
  /// The GPU's values are read when a round has ended, so that reading them lengthens no measured time. Empty: there is
  /// no GPU, or NVML does not tell. Clock and power are means over rounds: the clock of the rank where it is lowest,
  /// the power of the rank where it is highest.
  std::optional<double> gpu_clock_hz = {}, gpu_power_watts = {};
  std::optional<std::uint64_t> gpu_events = {};  ///< what slowed a GPU in any round: bits (runtime::clock_event_names)
};

void fill_noise(const MachineNoise&, core::Point& row);

class NoiseSampler {
 public:
  /// gpu: the gauge of this rank's GPU, which outlives the sampler. Null: there is none.
  explicit NoiseSampler(const runtime::GpuGauge* gpu = nullptr) : gpu_(gpu) {}
  /// `begin` and `end` are to be called around each round.
  void begin() { gauge_.emplace(); }
  void end();
  /// The noise of a process that measures alone.
  MachineNoise alone() const;
  /// The noise of all ranks together: shares, GPU clock and power are those of the worst rank, involuntary switches are
  /// summed, and GPU events united; `frequency_hz` is this rank's own. Collective over `c`.
  MachineNoise over(const runtime::Communicator& c) const;

 private:
  void read_gpu();

  const runtime::GpuGauge* gpu_;
  std::optional<runtime::NoiseGauge> gauge_;
  double elapsed_s_ = 0, stolen_s_ = 0, delayed_s_ = 0;
  std::int64_t involuntary_switches_ = 0;
  double frequency_hz_ = 0;
  struct Mean {
    double sum = 0;
    std::size_t count = 0;
    void add(const std::optional<double>& x) {
      if (x) sum += *x, ++count;
    }
    std::optional<double> value() const {
      return count > 0 ? std::optional(sum / static_cast<double>(count)) : std::nullopt;
    }
  };
  Mean gpu_clock_hz_, gpu_power_watts_;
  std::optional<std::uint64_t> gpu_events_;
};

}  // namespace gradmeter::bench
