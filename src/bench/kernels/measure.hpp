// SPDX-License-Identifier: Apache-2.0
// The measurement of one kernel on all ranks at once: prepared, checked, timed.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bench/engine/machine_state.hpp"
#include "bench/engine/rounds.hpp"
#include "bench/kernels/limits.hpp"
#include "bench/kernels/row.hpp"
#include "kernels/cases/kernel_case.hpp"

namespace gradmeter::bench {

/// The findings of one rank's checks: those of the first check that found a wrong result, else those of the last check.
/// The numbers are those of kernels::KernelCaseCheck.
struct RankCheck {
  double error = 0, worst = 0, zero_share = 0;
  bool right = true;
  void add(const kernels::KernelCaseCheck&);
};

/// Measures on the session's device. Each call is collective over `c`. Errors: Interrupted.
class KernelBenchmark {
 public:
  /// `sets`: the number of operand sets that calls rotate through.
  KernelBenchmark(Session&, const runtime::Communicator& c, const KernelPoint&, int threads, std::size_t sets,
                  std::uint64_t seed);

  /// `prepare` makes the kernel, `check` checks it. Both return why a rank could not; empty: all could. Wrong results
  /// go to KernelResults. flops_at_most: limit of the reference's FLOP. inject_error: one element on this rank is made
  /// wrong first.
  std::string prepare();
  std::string check(double flops_at_most, bool inject_error, KernelResults&);
  /// Times a call, and sets the number of calls of a sample from that time. Returns the time on the slowest rank [s].
  /// `warm`: true if a check has run before.
  double probe(bool warm);
  /// Warms up. Then `turn` may be called, until the rule or the budget is met. `bounded`: true if `seconds` is a budget
  /// that even long calls must keep, with fewer samples than the rule asks for; if there is no time for a second call,
  /// the probe is the only sample. check_flops: the FLOP of one check of a timed call; 0: no check is made.
  /// kernels_in_turn: the number of kernels that take turns.
  void start(const core::StoppingRule&, double seconds, bool bounded, double check_flops, std::size_t kernels_in_turn);
  /// Takes a block of samples, unless there are enough; returns true if there are. In each block, one sample drawn at
  /// random is checked, unless such checks have already taken more than a tenth of the blocks' time.
  bool turn();
  /// Fills in the findings. If the last block had no check, or if the kernel was built again between blocks
  /// (`may_build_anew`), one more check is made before.
  void finish(KernelResults&);

 private:
  std::vector<double> run_block(std::size_t count, bool keep);
  /// The time of a call [s] in each of `count` samples. `before`: called before the first sample, outside its time.
  std::vector<double> samples(
      std::size_t, const std::function<void()>& before = [] {});
  /// Takes samples as `samples` does, and checks the one with index `drawn`. The check is in no sample's time.
  std::vector<double> samples_and_check(std::size_t count, std::size_t drawn);
  /// Takes one sample, one call of which is checked. Returns the time of a call [s].
  double checked_sample();
  /// Draws which sample of a block is checked, and returns its index, the same on all ranks; returns `count` to check
  /// none.
  std::size_t draw_checked(std::size_t count) const;
  double sample() { return samples(1).front(); }
  void call();
  /// The reason why the case could not be made on some rank; empty: it was made.
  std::string make_case();
  /// True if there is time to build the kernel again in other memory, so that the time's 95 % interval covers the
  /// effect of memory pages (see Rebuilder). Always false on a device and for cold operands; the latter are spread over
  /// so many pages that this effect is small.
  bool may_build_anew() const;
  RoundOptions options(const core::StoppingRule&, double seconds, bool bounded) const;
  void gather(KernelResults&) const;

  Session& session_;
  const runtime::Communicator& communicator_;
  const KernelPoint& point_;
  int threads_;
  std::size_t sets_, next_set_ = 0, calls_per_sample_ = 1;
  std::size_t checked_set_ = 0, checked_runs_ = 0;  ///< the set under check; its runs since the check began
  std::uint64_t seed_;
  Rebuilder rebuilder_;
  std::optional<Rounds> rounds_;  ///< empty: the probe is the only sample
  bool has_exact_samples_ = false;
  NoiseSampler noise_;
  std::unique_ptr<DeviceClock> clock_;  ///< null: the host's clock is used
  std::unique_ptr<kernels::KernelCase> kernel_case_;
  double probe_s_ = 0, own_probe_s_ = 0;  ///< time of a call in `probe` on the slowest rank, and on this rank [s]
  core::Blocks times_;                    ///< this rank's samples
  RankCheck timed_call_findings_;         ///< findings of the checks of this rank's timed calls
  std::uint64_t secret_seed_;             ///< seed for the choice of checked samples; measured code cannot know it
  std::size_t timed_checks_ = 0;
  double check_flops_ = 0;              ///< FLOP of one check of a timed call; 0: no check is made
  double checks_s_ = 0, blocks_s_ = 0;  ///< time of these checks; time of the blocks that count, checks included
  bool checked_last_ = false;           ///< true: the last block was checked
  bool built_anew_ = false;
};

}  // namespace gradmeter::bench
