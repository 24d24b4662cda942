// SPDX-License-Identifier: Apache-2.0
// A fixed workload whose time shows the state of the machine. Neighbours on the host take caches, memory bandwidth and
// clock, not only processor time, and no counter shows that.
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

/// The state of the machine, from times of the same work.
class CanaryTimes {
 public:
  static constexpr double disturbance = 1.1;  ///< a round counts as disturbed above this ratio of its time to the best

  void add(double seconds) { times_.push_back(seconds); }
  std::size_t rounds() const { return times_.size(); }
  /// A tenth of all rounds so far took at most this time; with fewer than ten rounds it is the shortest time. The
  /// shortest of very many rounds is a matter of luck, and would mark all others as disturbed. Cost: O(rounds).
  double best() const;
  bool disturbed_at(std::size_t round, double best) const { return times_.at(round) > disturbance * best; }
  /// The best time of the run, divided by the median of the rounds from `first` on: 1 where the machine is steady or no
  /// round was run.
  double steadiness(std::size_t first = 0) const;

 private:
  std::vector<double> times_;
};

/// The canary's work: on each rank, on one thread, a product of 128-cubed fp32 (192 KiB: it depends on the core's
/// clock, arithmetic units and L2) and a copy of 256 KiB whose source has been flushed from all caches, so that each
/// line of it comes from memory. Both take some tens of microseconds, and each shows a neighbour's load. A round runs
/// the work five times on all ranks at once. A rank's time is the median of its five, so that a single interruption of
/// a rank (there is always one where ranks are many) does not count as the machine's state.
/// Cost: about a millisecond a round. Training loses under 0.8 MiB of each core's L2 and of its share of the last-level
/// cache, which the discarded steps of a block bring back.
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
  kernels::AlignedVector<float> a_, b_, sum_;
  kernels::AlignedVector<std::byte> from_, to_;
  CanaryTimes times_;
};

// Tells how steady the machine was while points took turns. The canary runs in the turns, and its state in a turn
// counts for all points alike.

struct MachineState {
  std::vector<std::size_t> disturbed = {};  ///< turns, in growing order
  std::size_t turns = 0;
  double steadiness = 1;
  /// The number of disturbed turns among the first `n`: a point with an exact number of samples ends before the others.
  std::size_t disturbed_of(std::size_t n) const;
};

/// The blocks that a point's figures come from.
struct UsedBlocks {
  std::size_t used = 0;
  std::size_t disturbed = 0;  ///< number of used blocks that are of disturbed turns
  std::size_t left_out = 0;   ///< number of blocks of disturbed turns that are not used
  double steadiness = 1;
  /// `taken`: the number of all blocks, which were taken in `turns` turns.
  static UsedBlocks of(const MachineState&, std::size_t turns, std::size_t taken, std::size_t used);
};
void fill_blocks(const UsedBlocks&, core::Metrics&);

/// The machine's state in some turns. first: the canary's round in which they began. round_of: for each turn, the last
/// canary round, which gives the turn's state.
MachineState state_of(const CanaryTimes&, std::size_t first, std::span<const std::size_t> round_of);

/// The turns in which the blocks of one point were taken; a turn may have no block.
class Turns {
 public:
  /// To be called after each turn, with the number of blocks taken so far.
  void note(std::size_t blocks);
  std::size_t count() const { return turns_; }
  /// The times without the blocks of disturbed turns, if the others are enough for an interval; else all.
  core::Blocks undisturbed(const core::Blocks&, const MachineState&) const;

 private:
  std::vector<std::size_t> turn_of_;  ///< the turn of each block
  std::size_t turns_ = 0;
};

/// Does work that belongs to no point. It is done in the first turn, and then as often as its share of the time allows.
class PeriodicWork {
 public:
  PeriodicWork(const runtime::Communicator& world, double share);
  /// Does the work when its time has come. Collective over the world, once a turn. Returns whether it was done.
  bool turn(const std::function<void()>& work);

 private:
  const runtime::Communicator& world_;
  double share_, begin_;
  double spent_s_ = 0;
  bool begun_ = false;
};

/// Runs the canary in the turns of some points. A round begins once the rounds before have taken less than a twentieth
/// of the time. Where turns are too short for a round each, several turns share the round before them.
class MachineMonitor {
 public:
  /// Collective over the world, as are all calls but `state`. canary: null on ranks that take no part. budget: the time
  /// for all points; after it, disturbed turns are no reason to continue.
  MachineMonitor(Canary* canary, const runtime::Communicator& world, core::Seconds budget);

  /// To be called once a turn.
  void round();
  MachineState state() const;
  /// True once the budget has passed and at least `least_turns` turns were taken.
  bool is_over(std::size_t least_turns = core::fewest_blocks) const;
  /// True where there are enough undisturbed turns, or there is no time for more.
  bool has_enough(std::size_t blocks) const;

 private:
  Canary* canary_;
  const runtime::Communicator& world_;
  PeriodicWork side_;
  double end_;
  std::size_t first_;
  std::vector<std::size_t> round_of_;
};

// The noise while a point was measured, over its rounds: other processes' use of the machine, and limits on its GPU's
// clock.

/// A share is NaN where the system does not tell it, and where less than 0.1 s were measured, since clock ticks and
/// time slices are some milliseconds long.
struct Noise {
  /// The share of (elapsed x cores) that the hypervisor took on the worst node.
  double steal_share = 0;
  /// The share of the elapsed time in which a thread of the worst rank was ready but not running.
  double run_delay_share = 0;
  std::string busy_host = {};  ///< host of the rank with that delay; empty: it is unknown, or there is one rank
  std::int64_t involuntary_switches = 0;
  double frequency_hz = 0;
  /// The GPU's values are read when a round has ended, so that no reading lengthens a measured time. Empty: there is no
  /// GPU, or NVML does not tell.
  /// Means over rounds, of the rank with the lowest clock and of the rank with the highest power.
  std::optional<double> gpu_clock_hz = {}, gpu_power_watts = {};
  std::optional<std::uint64_t> gpu_events = {};  ///< runtime::clock_event_names, over all rounds and GPUs
};

void fill_noise(const Noise&, core::Point& row);

class NoiseSampler {
 public:
  /// gpu: the gauge of this rank's GPU, which outlives the sampler. Null: there is none.
  explicit NoiseSampler(const runtime::GpuGauge* gpu = nullptr) : gpu_(gpu) {}
  void begin() { gauge_.emplace(); }
  void end();
  /// The noise of a process that measures alone.
  Noise alone() const;
  /// The worst values of all ranks. Collective over `c`.
  Noise over(const runtime::Communicator& c) const;

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
