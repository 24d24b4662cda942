// The measurement of one kernel on all ranks at once: prepared, checked, timed.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "bench/engine/rounds.hpp"
#include "bench/kernels/device_clock.hpp"
#include "bench/kernels/row.hpp"
#include "kernels/cases/kernel_case.hpp"

namespace gradmeter::bench {

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
  /// allows no other, the only sample.
  void measure(const core::StoppingRule&, double seconds, bool bounded, KernelFindings&);

 private:
  std::vector<double> run_block(std::size_t count, bool keep);
  /// Seconds a call in each of so many samples.
  std::vector<double> samples(std::size_t);
  double sample() { return samples(1).front(); }
  void call();
  RoundOptions options(const core::StoppingRule&, double seconds, bool bounded) const;
  void gather(KernelFindings&) const;

  Session& session_;
  const runtime::Communicator& c_;
  const KernelPoint& point_;
  int threads_;
  std::size_t sets_, next_ = 0, calls_ = 1;
  std::uint64_t seed_;
  std::unique_ptr<DeviceClock> clock_;  ///< null: the host's
  std::unique_ptr<kernels::KernelCase> kernel_case_;
  double probe_s_ = 0, own_probe_s_ = 0;
  core::Blocks times_;  ///< this rank's samples
};

}  // namespace gradmeter::bench
