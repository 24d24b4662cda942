// SPDX-License-Identifier: Apache-2.0
// Repeats a step on all ranks until its time is known well enough. It handles samples, whatever the experiment.
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
  std::size_t warmup_min = 5;  ///< samples, never zero
  core::Seconds warmup_budget{1};
  core::Seconds all{5};  ///< for a point, with all that is no sample
};

/// The parts of a step's time [s]. In lock step: of the rank that computed longest in the block. Elsewhere: of all
/// workers, each weighted by its steps per second, so that the parts add up to the harmonic mean of the steps.
struct StepParts {
  double compute = 0, communication = 0, exposed = 0, overlap = 0;
  double wait =
      0;  ///< of the exposed part, for peers that had not begun the call; without lock step all standing still
  double handling = 0;  ///< without lock step: of messages, by the workers' own threads
  double encode = 0, decode = 0;
};

/// The kernels of one name in a step of this rank: how many there are, and the time that they take [s], as means over a
/// block.
struct KernelTimes {
  std::string_view name;
  double count = 0, seconds = 0;
};

/// One block of samples. Only the first rank knows the single ranks' figures.
struct StepBlock {
  std::size_t round = 0;  ///< kept blocks and those without samples, counted
  double step = 0;  ///< median over the samples of the slowest rank's time; without lock step the harmonic mean [s]
  StepParts parts = {};
  int longest = 0;                   ///< the rank that computed longest
  std::vector<double> compute = {};  ///< by rank: median over the samples [s]; 0: it only serves
  std::vector<double> wait = {};     ///< by rank, likewise: the others' waits for a slow rank, no part of the step
  std::vector<KernelTimes> kernels = {};
  /// Medians of each call on `longest`, where they are asked for and all samples had as many.
  std::vector<dataparallel::CallTimes> calls = {};
  /// This rank's part of the step whose time is next to the median, the same step on all ranks. In lock step, with a
  /// period of 1.
  dataparallel::StepRecord typical = {};
  bool has_typical = false;  ///< the same on all ranks
};

/// The sample whose time is next to `middle`. late: of each sample, not 0 where it is left out; times: of the others,
/// at least one.
std::size_t sample_next_to(double middle, std::span<const double> late, std::span<const double> times);

struct Measurement {
  core::Blocks times;             ///< of the samples
  std::vector<StepBlock> blocks;  ///< as many
  core::Stop stop = core::Stop::none;
  double warmup_s = 0;  ///< first-use costs: connections, page faults; kept out of the samples
  std::size_t warmup_samples = 0;
  std::size_t dropped = 0;   ///< samples that missed their window
  std::size_t verified = 0;  ///< steps whose exchange was checked, and which are no samples
  bool wait_known = true;    ///< false: the clocks' uncertainty exceeds the wait
  bool bytes_right = true;   ///< every rank sent the sum of its schedule's messages
  std::string fault;         ///< what a check found wrong; empty: nothing

  /// Without the blocks of these rounds, in growing order.
  Measurement without(std::span<const std::size_t> rounds) const;
};

/// Measures one kind of step in rounds, so that several kinds can take turns: a temporary state of the machine then
/// affects all. Collective over `c`. Cost: a block gathers one record a rank on the first rank; all else is reduced in
/// O(log ranks). Errors: Interrupted when any rank has seen a signal.
class StepMeter {
 public:
  /// What is measured on this rank.
  struct Source {
    std::function<void()> prepare;  ///< loads the next batch: before the ranks synchronise and the clock is read
    std::function<const dataparallel::StepRecord&()> step;
    std::function<void()> begin_block = [] {},
                          end_block = [] {};  ///< between them no rank may call MPI, unless in lock step
    /// verify_next: the next step with an exchange is to be checked. verdict: what the checks since the last call
    /// found; empty: nothing wrong. Collective; `verdict` after `end_block`.
    std::function<void()> verify_next = [] {};
    std::function<std::string()> verdict = [] { return std::string(); };
    /// Steps after which exchanges repeat: with an exchange every 16th step, a sample is the mean of 16 steps.
    std::size_t period = 1;
    /// All ranks do the same step at the same time. Else a sample is the harmonic mean of the ranks' times of their
    /// i-th steps (a rank that only serves has none): the rate at which all together take samples. A block then begins
    /// with one sample that does not count, since it waits for nothing that a step before it has begun.
    bool lock_step = true;
    bool per_call = false;   ///< fill StepBlock::calls; in lock step, with a period of 1
    std::uint64_t seed = 1;  ///< of the place in each block where a step is checked
  };
  StepMeter(Session&, const runtime::Communicator& c, runtime::SharedClock&, const MeasureOptions&, Source);
  StepMeter(const StepMeter&) = delete;
  StepMeter& operator=(const StepMeter&) = delete;

  void warm_up();
  /// Discarded samples, then a block of about 100 ms. Stop::none: another round is wanted. The first time it is
  /// another, a step is verified behind the block.
  core::Stop round();
  const Measurement& result() const { return result_; }
  /// The least time that the blocks of an interval take; known after the warm-up.
  core::Seconds least() const { return {rounds_.least().value * static_cast<double>(source_.period)}; }

 private:
  struct Taken;
  struct Sum;
  std::vector<double> run_block(std::size_t samples, bool keep);
  bool may_verify() const;
  Taken take(std::size_t samples, std::optional<std::size_t> verified);
  void take_sample(Taken&, bool kept);
  std::vector<double> last_starts(const Taken&) const;
  std::vector<dataparallel::Decomposition> decompose_all(const Taken&) const;
  StepBlock in_lock_step(std::span<const dataparallel::Decomposition>) const;
  void keep_typical(Taken&, std::span<const double> times, StepBlock&) const;
  StepBlock at_own_pace(std::span<const dataparallel::Decomposition>, std::vector<double>& times) const;
  void note_ranks(std::span<const dataparallel::Decomposition>, StepBlock&) const;

  const runtime::Communicator& c_;
  runtime::SharedClock& clock_;
  Source source_;
  runtime::Pacer pacer_;
  Measurement result_;
  Rounds rounds_;
  std::uint64_t blocks_begun_ = 0;
  bool verified_end_ = false;           ///< behind the last block, once
  bool verifies_end_ = false;           ///< the block that runs is for that alone
  double blocks_s_ = 0, checks_s_ = 0;  ///< of all kept blocks, and of verified steps and verdicts in them
};

}  // namespace gradmeter::bench
