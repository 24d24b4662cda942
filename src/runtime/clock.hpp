// SPDX-License-Identifier: Apache-2.0
// Time: this host's clock, one clock for all ranks with its uncertainty, and the pause between two iterations.
#pragma once
#include <cstddef>
#include <deque>
#include <optional>
#include <span>
#include <string_view>

#include "runtime/communicator.hpp"

namespace gradmeter::runtime {

/// At time `at` of the own clock the reference was ahead by `offset`, with an error of at most `uncertainty` [s].
struct Synchronisation {
  double at = 0, offset = 0, uncertainty = 0;
};

/// The rate and offset of a reference clock against this process' own: a straight line through the synchronisations.
/// Without any synchronisation the own clock is the reference: offset and uncertainty are 0. The line is a
/// least-squares fit of the latest synchronisations, weighted by their uncertainties; before a rate has been fitted,
/// rates of clocks are taken to differ by at most 500 ppm. While the rate is constant, the uncertainty is a bound, not
/// a standard deviation: every synchronisation is taken to be as wrong as it may be. Source: Hunold & Carpen-Amarie,
/// "Hierarchical clock synchronization in MPI", CLUSTER 2018 (linear clock models).
class DriftModel {
 public:
  /// Adds a synchronisation, later than all before. If it cannot lie on the line, since the rate has changed, a new
  /// line starts at the synchronisation before it.
  void add(const Synchronisation&);

  double offset(double at) const { return offset_ + rate_ * (at - at_); }
  /// The uncertainty [s]. It grows with the time since the synchronisations, because the rate has an error too.
  double uncertainty(double at) const;
  /// The reference clock's time at a time of the own clock, and the other way round.
  double reference(double at) const { return at + offset(at); }
  double local(double reference) const { return at_ + (reference - at_ - offset_) / (1 + rate_); }

 private:
  void fit();

  std::deque<Synchronisation> latest_;
  double at_ = 0, offset_ = 0, uncertainty_ = 0;  ///< values at `at_`, in the middle of the synchronisations
  double rate_ = 0, rate_uncertainty_ = 0;        ///< slope of the offset, in seconds a second
};

/// This host's monotonic clock [s].
double host_clock();
/// The time at which this process began, by `host_clock` [s].
double process_begin();
/// Makes `host_clock` of this process alone run fast by this many parts in a million. Call it once, before anything is
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

/// One clock for all ranks of a communicator; rank 0's is the reference. Ranks of a node read one clock, so one of them
/// synchronises it for all; a process with an injected drift has a clock of its own. Nodes form a binomial tree under
/// rank 0: a node asks one that was synchronised before it for the reference time and its uncertainty. Cost: 30 round
/// trips in each of log2(nodes) rounds when it is made; none on one node. Uncertainty: half of the fastest trip, added
/// up along the tree; it grows with age (`DriftModel`). Source: Hunold & Carpen-Amarie, "Hierarchical clock
/// synchronization in MPI", CLUSTER 2018.
class SharedClock {
 public:
  /// Collective, as are all calls but `model`. node: ranks with the same number (at least 0) are taken to share a
  /// clock; empty: ranks of one real node share it.
  explicit SharedClock(const Communicator&, std::optional<int> node = {});

  /// Must be called between blocks, never beside timed calls. Cost: a broadcast; if the last synchronisation is over a
  /// quarter of a second old, also a new one of 10 round trips a round.
  void resynchronise();
  /// Converts this rank's host_clock() to rank 0's and back.
  const DriftModel& model() const { return model_; }
  /// The largest difference that the reference times of two ranks may have now: the sum of their uncertainties; 0 on
  /// one node.
  double pair_uncertainty() const;

 private:
  void synchronise(int trips);

  Communicator peers_;    ///< the ranks that read the same clock as this one
  Communicator leaders_;  ///< communicator of the first peer of each clock; null on the others
  int clocks_;
  DriftModel model_;
  double last_ = 0;  ///< when it was synchronised last, by host_clock()
};

/// The transition between two iterations. It changes the time of the same operation by up to 1.7x, so it is a factor.
/// barrier: all ranks meet before each iteration (isolated). none: back to back (streaming). window: all ranks begin at
/// one agreed moment of the common clock; late iterations are dropped.
enum class Cadence { barrier, none, window };
std::string_view name(Cadence);
std::span<const Cadence> cadences();

/// Begins iterations by a cadence. All ranks call it alike.
class Pacer {
 public:
  Pacer(Cadence c, const Communicator& communicator, SharedClock& clock)
      : cadence_(c), communicator_(communicator), clock_(clock) {}
  /// Collective. Before a block of iterations: synchronises the clocks again when it is time to, and agrees on when the
  /// first window opens and how long each lasts.
  void open(double window_s);
  /// False: this rank came too late for its window, so the iteration must not count.
  bool next();

 private:
  Cadence cadence_;
  const Communicator& communicator_;
  SharedClock& clock_;
  double opens_ = 0, window_ = 0;  ///< [s] of rank 0's clock
};

}  // namespace gradmeter::runtime
