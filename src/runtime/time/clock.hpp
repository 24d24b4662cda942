// One clock for all ranks: each host's monotonic clock against rank 0's, and how sure that is.
#pragma once
#include <optional>

#include "runtime/communicator.hpp"
#include "runtime/time/drift_model.hpp"

namespace gradmeter::runtime {

/// This host's monotonic clock [s].
double host_clock();
/// From now on `host_clock` of this process alone runs fast by so many parts in a million. Once, before anything is
/// measured and before there are other threads.
void inject_clock_drift(double ppm);

/// Adds the time of its scope to a sum [s].
class Timed {
 public:
  explicit Timed(double& sum) : sum_(sum), begin_(host_clock()) {}
  ~Timed() { sum_ += host_clock() - begin_; }
  Timed(const Timed&) = delete;
  Timed& operator=(const Timed&) = delete;

 private:
  double& sum_;
  double begin_;
};

/// The ranks of a communicator with rank 0's clock as the reference. Ranks of a node read one clock, so one of them
/// synchronises it for all; a process with an injected drift has a clock of its own. Nodes form a binomial tree under
/// rank 0: a node asks one that has been synchronised before it, for the reference time and for how sure it is of that.
/// Cost: 30 round trips in each of log2(nodes) rounds when made; nothing but that on one node, ever.
/// Uncertainty: half of the fastest trip, added up along the tree; it ages (drift_model.hpp).
/// Source: Hunold & Carpen-Amarie, "Hierarchical clock synchronization in MPI", CLUSTER 2018.
class SharedClock {
 public:
  /// Collective, as are all calls but `model`. node: ranks that give the same number (at least 0) are taken to share a
  /// clock; empty: those of a real node do.
  explicit SharedClock(const Communicator&, std::optional<int> node = {});

  /// Between blocks, never beside calls that are timed. Cost: a broadcast; a quarter of a second after the last
  /// synchronisation, another one of 10 round trips a round.
  void resynchronise();
  /// From this rank's host_clock() to rank 0's and back.
  const DriftModel& model() const { return model_; }
  /// By how much the reference times of any two ranks may be apart, now: the uncertainties of both; 0 on one node.
  double pair_uncertainty() const;

 private:
  void synchronise(int trips);

  Communicator peers_;    ///< that read the same clock as this rank
  Communicator leaders_;  ///< the first of the peers of each clock; null on the others
  int clocks_;
  DriftModel model_;
  double last_ = 0;  ///< synchronisation, host_clock()
};

}  // namespace gradmeter::runtime
