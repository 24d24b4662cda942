// SPDX-License-Identifier: Apache-2.0
// Repeats a step on all ranks until its time is known well enough.
#pragma once
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bench/engine/rounds.hpp"
#include "dataparallel/fabric/decorators/probe.hpp"
#include "runtime/clock.hpp"

namespace gradmeter::bench {

struct MeasureOptions {
  runtime::Cadence cadence = runtime::Cadence::barrier;
  core::StoppingRule rule;
  std::size_t warmup_min = 5;  ///< number of samples, never zero
  core::Seconds warmup_budget{1};
  core::Seconds whole_budget{5};  ///< time budget of a whole point, not only of its samples
};

/// The parts of a step's time [s]. In lock step (StepMeter::Source::lock_step) they are the parts of the rank that
/// computed longest in the block. Otherwise they are means over all workers, weighted by steps per second, so that they
/// add up to the harmonic mean of the workers' step times.
struct StepParts {
  double compute = 0, communication = 0, exposed = 0, overlap = 0;
  /// The part of `exposed` in which a rank waits for peers to begin a call; without lock step, all waits of workers.
  double wait = 0;
  double handling = 0;  ///< without lock step, the time in which the workers' own threads handle messages
  double encode = 0, decode = 0;
  double update = 0;  ///< the part of `compute` after the last gradient was ready, if that was recorded
};

/// The kernels of one name in a step of this rank: their number, and the time that they take [s], as means over a
/// block.
struct KernelTimes {
  std::string_view name;
  double count = 0, seconds = 0;
};

/// One block of samples. Only the first rank knows the figures by rank.
struct StepBlock {
  std::size_t round = 0;  ///< number of earlier blocks, those that gave no samples included
  /// The median of the samples [s]. A sample is the time of the slowest rank, or without lock step the harmonic mean of
  /// the workers' times.
  double step = 0;
  StepParts parts = {};
  int longest_rank = 0;                   ///< the rank that computed longest
  std::vector<double> compute = {};       ///< by rank: median over the samples [s]; 0 where the rank only serves
  std::vector<double> wait = {};          ///< by rank: median over the samples of its waits for other ranks [s]
  std::vector<double> step_by_rank = {};  ///< by rank: median over the samples of its own step [s]
  std::vector<KernelTimes> kernels = {};
  /// The median times of each call on `longest_rank`; empty if not asked for, or if samples differ in their number of
  /// calls.
  std::vector<dataparallel::CallTimes> calls = {};
  /// The time at which each tensor's gradient was ready on all ranks: the largest of the ranks' medians, each from the
  /// begin of its own step [s]. Empty unless the records have such times.
  std::vector<double> ready = {};
  /// This rank's record of the step whose time is nearest to the median; all ranks keep the same step. Kept only in
  /// lock step with a period of 1, and without its waits.
  dataparallel::StepRecord typical = {};
  bool has_typical = false;  ///< the same on all ranks
};

/// The index of the sample whose time is nearest to `middle`, among the samples that are not left out. late: a number
/// for each sample; above 0 the sample is left out. times: only those of the samples that are not left out, in order,
/// at least one. The index counts all samples, as `late` does.
std::size_t sample_next_to(double middle, std::span<const double> late, std::span<const double> times);

struct Measurement {
  core::Blocks times;             ///< times of the samples
  std::vector<StepBlock> blocks;  ///< one for each block of `times`
  core::Stop stop = core::Stop::none;
  double warmup_s = 0;  ///< first-use costs: connections, page faults; kept out of the samples
  std::size_t warmup_samples = 0;
  std::size_t dropped = 0;   ///< number of samples that some rank began too late for their time window
  std::size_t verified = 0;  ///< number of steps whose exchange was checked; they are no samples
  bool wait_known = true;    ///< false: the wait is read from several clocks and not longer than their uncertainty
  bool bytes_right = true;   ///< every rank sent as many bytes as its schedule requires
  std::string fault;         ///< what a check found wrong; empty: nothing

  /// A copy without the blocks whose `round` is one of `rounds`, which ascend.
  Measurement without(std::span<const std::size_t> rounds) const;
};

/// Measures one kind of step in rounds, so that several kinds can take turns: a temporary state of the machine then
/// affects all of them. Collective over `c`. Cost: a block gathers one record a rank on the first rank; all else is
/// reduced in O(log ranks). It does not look for signals; the caller does, between turns.
class StepMeter {
 public:
  /// The functions that make this rank's steps, and how they are sampled.
  struct Source {
    std::function<void()> prepare;  ///< loads the next batch, before the ranks synchronise and the clock is read
    std::function<void()> step;     ///< makes a step, or only submits it to a device
    /// Waits for the steps since the last call, and returns their records in their order.
    std::function<std::vector<dataparallel::StepRecord>()> take_records;
    /// Called before and after each block. During a block the meter itself communicates only if ranks are in lock step.
    std::function<void()> begin_block = [] {}, end_block = [] {};
    /// verify_next: asks that the next step with an exchange be checked. take_fault: returns what the checks have found
    /// since its last call; empty: nothing wrong. Both are collective, and `take_fault` is called after `end_block`.
    std::function<void()> verify_next = [] {};
    std::function<std::string()> take_fault = [] { return std::string(); };
    /// Number of steps after which exchanges repeat. With an exchange every 16th step, a sample is a mean of 16 steps.
    std::size_t period = 1;
    /// True where all ranks make the same step at the same time. Otherwise a sample is the harmonic mean of the times
    /// of the ranks' i-th steps (without ranks that only serve), which gives the rate at which all together make steps.
    /// A block then begins with one sample that does not count, since at its begin no earlier step's exchange is under
    /// way.
    bool lock_step = true;
    bool per_call = false;   ///< whether StepBlock::calls and `ready` are filled; needs lock step and a period of 1
    std::uint64_t seed = 1;  ///< draws which step of a block is checked
  };
  StepMeter(Session&, const runtime::Communicator& c, runtime::SharedClock&, const MeasureOptions&, Source);
  StepMeter(const StepMeter&) = delete;
  StepMeter& operator=(const StepMeter&) = delete;

  void warm_up();
  /// Takes some samples that are discarded, then a block of about 100 ms. Returns Stop::none where another round is
  /// needed. When it first returns another value, a step has been verified after the block.
  core::Stop round();
  const Measurement& result() const { return result_; }
  /// An estimate of the time that the fewest blocks to measure (core::fewest_blocks_of) take; known after the warm-up.
  core::Seconds least_time() const { return {rounds_.least_time().value * static_cast<double>(source_.period)}; }

 private:
  struct BlockSteps;
  std::vector<double> run_block(std::size_t samples, bool keep);
  bool may_verify() const;
  BlockSteps take(std::size_t samples, std::optional<std::size_t> verified);
  void take_sample(BlockSteps&, bool kept);
  std::vector<double> last_starts(const BlockSteps&) const;
  std::vector<dataparallel::Decomposition> decompose_all(const BlockSteps&) const;
  StepBlock lock_step_block(std::span<const dataparallel::Decomposition>) const;
  void keep_typical(BlockSteps&, std::span<const double> times, StepBlock&) const;
  StepBlock own_pace_block(std::span<const dataparallel::Decomposition>, std::vector<double>& times) const;
  void gather_rank_figures(std::span<const dataparallel::Decomposition>, StepBlock&) const;

  const runtime::Communicator& communicator_;
  runtime::SharedClock& clock_;
  Source source_;
  runtime::Pacer pacer_;
  Measurement result_;
  Rounds rounds_;
  std::uint64_t blocks_begun_ = 0;
  bool verified_end_ = false;           ///< true: one more step was verified after the last block of samples
  bool verifies_end_ = false;           ///< true while that step is verified, in a block without samples
  double blocks_s_ = 0, checks_s_ = 0;  ///< time of all kept blocks, and of all verified steps with their verdicts
};

}  // namespace gradmeter::bench
