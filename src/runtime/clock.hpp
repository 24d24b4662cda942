// SPDX-License-Identifier: Apache-2.0
// Time: this host's clock; one clock for all ranks, with its uncertainty; and the cadence of iterations.
#pragma once
#include <cstddef>
#include <deque>
#include <optional>
#include <span>
#include <string_view>

#include "runtime/communicator.hpp"

namespace gradmeter::runtime {

/// A comparison of two clocks: at time `at` of this process's clock, the reference clock was ahead by `offset`, with an
/// error of at most `uncertainty` (all in seconds).
struct Synchronisation {
  double at = 0, offset = 0, uncertainty = 0;
};

/// The offset of a reference clock from this process's clock, as a straight line over time. Without any
/// synchronisation, offset and uncertainty are 0. The line is a least-squares fit of the latest synchronisations,
/// weighted by their uncertainties. Before a rate has been fitted, the rates of clocks are assumed to differ by at most
/// 500 ppm. As long as the rate is constant, the uncertainty is a bound, not a standard deviation: every
/// synchronisation is assumed to have its largest error. Source: Hunold & Carpen-Amarie, "Hierarchical clock
/// synchronization in MPI", CLUSTER 2018 (linear clock models).
class DriftModel {
 public:
  /// Adds a synchronisation, which must be later than all before. If it is further off the line than the uncertainties
  /// allow, the rate has changed, and a new line starts at the previous synchronisation.
  void add(const Synchronisation&);

  double offset(double at) const { return offset_ + rate_ * (at - at_); }
  /// The largest error of `offset(at)` [s]. It grows with the time since the synchronisations, because the rate has an
  /// error too.
  double uncertainty(double at) const;
  /// Converts a time of this process's clock to the reference clock, and back.
  double reference(double at) const { return at + offset(at); }
  double local(double reference) const { return at_ + (reference - at_ - offset_) / (1 + rate_); }

 private:
  void fit();

  std::deque<Synchronisation> latest_;
  /// The line's offset and uncertainty at time `at_`, the weighted mean time of the synchronisations.
  double at_ = 0, offset_ = 0, uncertainty_ = 0;
  double rate_ = 0, rate_uncertainty_ = 0;  ///< slope of the offset, in seconds a second
};

/// This host's monotonic clock [s].
double host_clock();
/// The time at which this process began, by `host_clock` [s].
double process_begin();
/// Makes `host_clock` in this process run fast by this many parts in a million. Call it once, before anything is
/// measured and before there are other threads.
void inject_clock_drift(double ppm);

/// Measures the time from its construction to the end of the scope, and adds this time to `sum` [s].
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

/// One clock for all ranks of a communicator; rank 0's is the reference. The ranks of a node read the same clock, so
/// one of them synchronises for all. (A process with an injected drift has a clock of its own.) Nodes form a binomial
/// tree under rank 0: each node asks a node that was synchronised before it for the reference time and its uncertainty.
/// Cost of construction: 30 round trips in each of log2(nodes) rounds; none on one node. Uncertainty: half of the
/// fastest round trip, added up along the tree; it grows with age (`DriftModel`). Source: Hunold & Carpen-Amarie,
/// "Hierarchical clock synchronization in MPI", CLUSTER 2018.
class SharedClock {
 public:
  /// Collective, as are all calls but `model`. node: ranks with the same number (at least 0) share a clock; empty: the
  /// ranks of a real node do.
  explicit SharedClock(const Communicator&, std::optional<int> node = {});

  /// Must be called between blocks of iterations, never during timed calls. Cost: up to two broadcasts; if the last
  /// synchronisation is over a quarter of a second old, also a new one, with 10 round trips in each round.
  void resynchronise();
  /// Converts this rank's host_clock() to rank 0's clock, and back.
  const DriftModel& model() const { return model_; }
  /// The largest error that the difference of two ranks' reference times may have now [s]. It is 0 if all ranks read
  /// the same clock; with two clocks, the uncertainty of the one that is not the reference; with more, twice the
  /// largest uncertainty of any clock.
  double pair_uncertainty() const;

 private:
  void synchronise(int trips);

  Communicator peers_;    ///< the ranks that read the same clock as this one
  Communicator leaders_;  ///< the first rank of each clock; a null communicator on all other ranks
  int clocks_;            ///< number of different clocks that the ranks read
  DriftModel model_;
  double last_ = 0;  ///< time of the last synchronisation, by host_clock()
};

/// The rule by which one iteration follows another. It changes the time of the same operation by up to 1.7x, so it is a
/// factor of results. barrier: all ranks meet before each iteration (isolated). none: back to back (streaming). window:
/// all ranks begin at an agreed time of the common clock, and iterations that begin late are dropped.
enum class Cadence { barrier, none, window };
std::string_view name(Cadence);
std::span<const Cadence> cadences();

/// Begins iterations with a cadence. All ranks make the same calls.
class Pacer {
 public:
  Pacer(Cadence c, const Communicator& communicator, SharedClock& clock)
      : cadence_(c), communicator_(communicator), clock_(clock) {}
  /// Call it before a block of iterations. Collective. It synchronises the clocks again if necessary. For
  /// Cadence::window the ranks also agree on the time at which the first window opens, and on rank 0's `window_s`, the
  /// length of a window [s].
  void open(double window_s);
  /// False: this rank came too late for its window, so the iteration must not count.
  bool next();

 private:
  Cadence cadence_;
  const Communicator& communicator_;
  SharedClock& clock_;
  double opens_ = 0, window_ = 0;  ///< opening time of the next window, and length of a window [s of rank 0's clock]
};

}  // namespace gradmeter::runtime
