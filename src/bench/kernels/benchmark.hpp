// The measurement of one kernel on all ranks at once: prepared, checked, timed.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "bench/engine/rebuilding.hpp"
#include "bench/engine/rounds.hpp"
#include "bench/kernels/device_clock.hpp"
#include "bench/kernels/row.hpp"
#include "kernels/cases/kernel_case.hpp"

namespace gradmeter::bench {

/// What one rank's checks found: of several, the first that is wrong, or else the last.
struct RankCheck {
  double error = 0, worst = 0, zero_share = 0;
  bool right = true;
  void add(const kernels::KernelCaseCheck&);
};

/// Collective over `c` in each call. On the session's device. Errors: Interrupted.
class KernelBenchmark {
 public:
  /// `sets`: operand sets that calls rotate through.
  KernelBenchmark(Session&, const runtime::Communicator& c, const KernelPoint&, int threads, std::size_t sets,
                  std::uint64_t seed);

  /// Why it could not be made, or its check not be done, on some rank; empty: it was. `inject_error`: on this rank one
  /// element is made wrong first.
  std::string prepare();
  std::string check(double flops_at_most, bool inject_error, KernelFindings&);
  /// One timed call, the slowest rank's [s]; it decides how many calls one sample has. `warm`: a check ran before.
  double probe(bool warm);
  /// Samples until the rule or the budget ends them. The probe is the warm-up's first sample and, where the budget
  /// allows no other, the only sample. Where a check ran before, results of timed calls are checked too, each by about
  /// `flops_at_most` of the reference: of a sample drawn from the first block that counts, of samples drawn from others
  /// for as long as that takes a tenth of the time, and of one at the end.
  void measure(const core::StoppingRule&, double seconds, bool bounded, double flops_at_most, KernelFindings&);

 private:
  std::vector<double> run_block(std::size_t count, bool keep);
  /// Seconds a call in each of so many samples. `before`: called before the first, outside its time.
  std::vector<double> samples(
      std::size_t, const std::function<void()>& before = [] {});
  /// The same, of which the one at `drawn` is checked, outside the time of all.
  std::vector<double> samples_and_check(std::size_t count, std::size_t drawn);
  double checked_sample();
  /// The place of a block's checked sample; `count`: it has none. The same on all ranks.
  std::size_t draw_checked(std::size_t count) const;
  double sample() { return samples(1).front(); }
  void call();
  /// Why it could not be done on some rank; empty: it was.
  std::string make_case();
  /// Hot operands only: cold ones are in so many places that these matter less.
  bool may_build_anew() const;
  RoundOptions options(const core::StoppingRule&, double seconds, bool bounded) const;
  void gather(KernelFindings&) const;

  Session& session_;
  const runtime::Communicator& c_;
  const KernelPoint& point_;
  int threads_;
  std::size_t sets_, next_ = 0, calls_ = 1;
  std::uint64_t seed_;
  Rebuilding building_;
  std::unique_ptr<DeviceClock> clock_;  ///< null: the host's
  std::unique_ptr<kernels::KernelCase> kernel_case_;
  double probe_s_ = 0, own_probe_s_ = 0;
  core::Blocks times_;    ///< this rank's samples
  RankCheck timed_;       ///< of this rank's timed calls, all together
  std::uint64_t secret_;  ///< of the places that are checked: nothing that runs knows it before
  std::size_t timed_checks_ = 0;
  double check_flops_ = 0;              ///< of one of these; 0: none is made
  double checks_s_ = 0, blocks_s_ = 0;  ///< of such checks; of the blocks that count, with them
  bool checked_last_ = false;           ///< the last block was checked
  bool built_anew_ = false;
};

}  // namespace gradmeter::bench
