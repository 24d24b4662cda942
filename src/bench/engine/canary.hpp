// A fixed workload whose time shows the state of the machine. Neighbours on the host take caches, memory bandwidth and
// clock, not only processor time, and no counter shows that.
#pragma once
#include <vector>

#include "bench/engine/session.hpp"
#include "kernels/aligned.hpp"
#include "kernels/gemm.hpp"

namespace gradmeter::bench {

/// The state of the machine, from times of the same work.
class CanaryTimes {
 public:
  static constexpr double disturbance = 1.1;  ///< above this ratio

  void add(double seconds) { times_.push_back(seconds); }
  std::size_t rounds() const { return times_.size(); }
  /// The time that a tenth of all rounds so far reached (of under ten rounds, the shortest). The least of very many is
  /// luck, and would mark them all as disturbed. Cost: O(rounds).
  double best() const;
  bool disturbed_at(std::size_t round, double best) const { return times_.at(round) > disturbance * best; }
  /// Best of the run, divided by the median of the rounds from `first` on: 1 where the machine is steady or no round
  /// was run.
  double steadiness(std::size_t first = 0) const;

 private:
  std::vector<double> times_;
};

/// The work: on each rank, on one thread, a product of 128-cubed fp32 (192 KiB: clock, units and L2 of the core) and a
/// copy of 256 KiB whose source has been flushed from all caches, so that each line of it comes from memory. Both take
/// some tens of microseconds, and each shows a neighbour's load. A round runs it five times on all ranks at once. A
/// rank's time is the median of its five, so that a single interruption of a rank (there is always one where ranks are
/// many) does not count as the machine's state.
/// Cost: about a millisecond a round. Training loses under 0.8 MiB of each core's L2 and of its share of the last
/// cache, which the discarded steps of a block bring back.
class Canary {
 public:
  /// Collective over `c`, which must outlive it, as is `round`. Ranks of the world outside `c` take no part.
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

}  // namespace gradmeter::bench
