// SPDX-License-Identifier: Apache-2.0
// Requests of the calling thread to the scheduler and its processor: how it waits for another core, short time slices,
// and zeros for subnormal numbers.
#pragma once
#include <cstdint>

namespace gradmeter::runtime {

/// The way to wait for another core: spin while a core is ours, give it away when it is not. Measured on 2 cores: with
/// 4 ranks an 8-byte all-reduce took 33 us when each polled 2000 times before yielding and 2.7 us with 20 (and 0.8 us
/// on 2 ranks with a core each, spinning): so the counts follow oversubscription. With a core each, 200 polls are some
/// 10 us: longer than a small message takes, and short enough that two ranks which the system has put on one core for a
/// while do not make each other's messages 50 us long, as they did with 2000.
struct SpinPolicy {
  int spins;   ///< polls with a pause between, before giving the core away
  int yields;  ///< sched_yield calls before sleeping; 0: never sleep
};
/// `runnable`: busy threads on this node; `cores`: cores they may use.
SpinPolicy spin_policy_for(int runnable, int cores);

/// Waits in steps for another thread. Keep one object for many waits, since it learns. Each yield halves the polls
/// before the next one, since the awaited thread may need this very core; each wait that ends without a yield doubles
/// them again. So two ranks that the system has put on one core for a while hand it over at once.
class Backoff {
 public:
  explicit Backoff(SpinPolicy p) : spin_policy_(p), spins_(p.spins) {}
  void wait();
  /// Must be called when a wait has ended.
  void reset();
  /// Whether cores are shared, so that a long wait sleeps.
  bool may_sleep() const { return spin_policy_.yields > 0; }
  /// Polls before the next yield, as learned.
  int spins() const { return spins_; }

 private:
  SpinPolicy spin_policy_;
  int spins_;
  int spun_ = 0;
  std::int64_t yielded_ = 0;  ///< number of yields in one wait, which may last for days
};

/// For a thread that mostly sleeps and must not wait long when it wakes: it asks for its share of the core in short
/// turns, so that it comes before a computation that has the core (Linux 6.12 and later; earlier ones ignore it), and
/// for naps that end on time. It needs no privilege and takes no more of the core than before.
void request_short_time_slices();

/// From now on the calling thread, and every thread that it starts, computes with zeros in place of numbers below the
/// smallest normal one (fp32: 1.2e-38), which many processors handle in microcode: as operands and as results. Call it
/// before there are other threads. On x86-64 and AArch64; elsewhere it does nothing.
///
/// Why: gradients that die out (units that are off, a softmax that is sure, training that diverges) leave averages that
/// shrink by a factor each step into this range and stay there. Measured on an AMD EPYC, an update of Adam or LAMB then
/// takes two to three times as long; on other processors far more. A step's time must not depend on that.
/// Source: Intel SDM volume 1, section 10.2.3 (flush-to-zero, denormals-are-zeros); TensorFlow does the same on the
/// threads that compute (tsl/platform/denormal.h).
void flush_subnormals();

}  // namespace gradmeter::runtime
