// SPDX-License-Identifier: Apache-2.0
// How the calling thread waits for a thread on another core, and what it asks of the scheduler (short time slices) and
// of its processor (zeros for subnormal numbers).
#pragma once
#include <cstdint>

namespace gradmeter::runtime {

/// How a thread waits for a thread on another core: it polls at most `spins` times, gives its own core away, and
/// begins again; once it has given the core away `yields` times, it sleeps instead. `spin_policy_for` chooses both
/// numbers by whether there are more busy threads than cores. Measured on 2 cores with 4 ranks, an 8-byte all-reduce
/// took 33 us when each rank polled 2000 times before yielding, and 2.7 us with 20 polls. (On 2 ranks with a core each,
/// which spin, it took 0.8 us.) Where each rank has a core, it polls 200 times, some 10 us: longer than a small message
/// takes, yet short enough if the system has put two ranks on one core for a while. (With 2000 polls such ranks delayed
/// each other's messages by 50 us.)
struct SpinPolicy {
  int spins;   ///< polls with a pause between, before giving the core away
  int yields;  ///< sched_yield calls before sleeping; by convention 0: never sleep
};
/// `runnable`: number of busy threads on this node; `cores`: number of cores they may use.
SpinPolicy spin_policy_for(int runnable, int cores);

/// Waits in steps for another thread. Keep one object for many waits, since it learns. Each yield halves the polls
/// before the next yield, since the awaited thread may need this very core. Each wait that ends without a yield doubles
/// the polls again. So two ranks that the system has put on one core for a while hand the core over at once.
class Backoff {
 public:
  explicit Backoff(SpinPolicy p) : spin_policy_(p), spins_(p.spins) {}
  void wait();
  /// Must be called when a wait has ended.
  void reset();
  /// True if cores are shared, so that a long wait sleeps.
  bool may_sleep() const { return spin_policy_.yields > 0; }
  /// Number of polls before the next yield, as learned.
  int spins() const { return spins_; }

 private:
  SpinPolicy spin_policy_;
  int spins_;
  int spun_ = 0;
  std::int64_t yielded_ = 0;  ///< number of yields in one wait; it is wide since a wait may last for days
};

/// For a thread that mostly sleeps and must run soon after it wakes. Asks the scheduler to give the thread its share of
/// the core in short turns, so that it comes before a computation that has the core (Linux 6.12 and later; earlier ones
/// ignore this), and to end its sleeps on time. This needs no privilege, and the thread gets no larger share of the
/// core than before.
void request_short_time_slices();

/// From now on the calling thread, and every thread that it starts, computes with zeros in place of numbers below the
/// smallest normal one (fp32: 1.2e-38), both as operands and as results, since many processors handle such numbers
/// slowly, in microcode. Call it before there are other threads. It works on x86-64 and AArch64; elsewhere it does
/// nothing.
///
/// Gradients that die out (units that are off, a softmax that is sure, training that diverges) leave averages that
/// shrink by a factor each step, reach this range and stay there. Measured on an AMD EPYC, an update of Adam or LAMB
/// then takes two to three times as long; on other processors far more. A step's time must not depend on that. Source:
/// Intel SDM volume 1, section 10.2.3 (flush-to-zero, denormals-are-zeros); TensorFlow does the same on the threads
/// that compute (tsl/platform/denormal.h).
void flush_subnormals();

}  // namespace gradmeter::runtime
