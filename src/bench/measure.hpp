// Repeats a step on all ranks until its time is known well enough. Knows samples, not topics.
#pragma once
#include <functional>
#include <vector>

#include "bench/rounds.hpp"
#include "dataparallel/probe.hpp"
#include "runtime/cadence.hpp"

namespace gradmeter::bench {

/// One iteration. Its time is the longest of all ranks, in lock step; the parts are those of that slowest rank.
struct StepSample {
  dataparallel::Decomposition slowest;
  std::uint64_t bytes_sent_max = 0, bytes_sent_total = 0, bytes_between_nodes = 0, bytes_due_total = 0;
  bool bytes_known = true, bytes_right = true;  ///< right: every rank sent what its schedule's messages add up to
};

struct MeasureOptions {
  runtime::Cadence cadence = runtime::Cadence::barrier;
  core::StoppingRule rule;
  std::size_t warmup_min = 5;  ///< steps, never zero
  core::Seconds warmup_budget{1};
};

struct Measurement {
  std::vector<StepSample> samples;
  core::Stop stop = core::Stop::none;
  double warmup_s = 0;  ///< first-use costs: connections, page faults; kept out of the samples
  std::size_t warmup_steps = 0;
  std::size_t dropped = 0;  ///< iterations that missed their window
  bool skew_known = true;   ///< false: clocks are less sure of each other than the skew is long

  std::vector<double> times() const;
  /// Median over iterations of one part.
  double median_of(double dataparallel::Decomposition::*part) const;
};

/// Measures one kind of step in rounds, so that several kinds can take turns: what the machine does to one of them for
/// a while, it does to all. Collective over `c`; `step` runs one iteration on this rank and gives its record.
/// Errors: Interrupted when any rank has seen a signal.
class StepMeter {
 public:
  /// What is measured on this rank. `lock_step`: all ranks do the same step at the same time; else a sample is the
  /// harmonic mean of the ranks' times of their i-th steps (a rank that only serves has none): the rate at which all
  /// together take samples.
  struct Source {
    std::function<const dataparallel::StepRecord&()> step;
    std::function<void()> begin_block = [] {},
                          end_block = [] {};  ///< between them no rank may call MPI, unless in lock step
    bool lock_step = true;
  };
  StepMeter(Session&, const runtime::Communicator& c, runtime::ClockOffset, const MeasureOptions&, Source);
  StepMeter(const StepMeter&) = delete;
  StepMeter& operator=(const StepMeter&) = delete;

  void warm_up();
  /// Two discarded steps, then a block of about 100 ms. Stop::none: another round is wanted.
  core::Stop round();
  const Measurement& result() const { return result_; }

 private:
  std::vector<double> run_block(std::size_t steps, bool keep);
  void judge(const std::vector<dataparallel::StepRecord>&, const std::vector<char>& in_time,
             std::vector<StepSample>& out);
  std::size_t most_calls(const std::vector<dataparallel::StepRecord>&) const;
  std::vector<double> aligned_starts(const std::vector<dataparallel::StepRecord>&, std::size_t calls) const;
  std::vector<double> last_starts(const std::vector<double>& all, std::size_t at, std::size_t calls,
                                  std::size_t per_rank) const;
  StepSample combine(const dataparallel::Decomposition& mine) const;

  const runtime::Communicator& c_;
  runtime::ClockOffset offset_;
  Source source_;
  runtime::Pacer pacer_;
  Measurement result_;
  Rounds rounds_;
};

}  // namespace gradmeter::bench
