// SPDX-License-Identifier: Apache-2.0
// The wait of a thread for a thread on another core: it polls, yields or sleeps.
#pragma once
#include <cstdint>

namespace gradmeter::runtime {

/// The numbers that rule a thread's wait: it polls at most `spins` times, gives its own core away, and begins again;
/// after it has given the core away `yields` times, it sleeps instead. `spin_policy_for` chooses both numbers,
/// depending on whether there are more busy threads than cores. Measured on 2 cores with 4 ranks, an 8-byte all-reduce
/// took 33 us when each rank polled 2000 times before yielding, and 2.7 us with 20 polls. (With 2 ranks, each with a
/// core of its own, it took 0.8 us.) Where each rank has a core, it polls 200 times, some 10 us: longer than a small
/// message takes, yet short enough for ranks that the system has put on one core for a while. (With 2000 polls, two
/// ranks on one core delayed each other's messages by 50 us.)
struct SpinPolicy {
  int spins;   ///< polls with a pause between, before giving the core away
  int yields;  ///< sched_yield calls before sleeping; by convention 0: never sleep
};
/// `runnable`: number of busy threads on this node; `cores`: number of cores they may use.
SpinPolicy spin_policy_for(int runnable, int cores);

/// Waits in steps for another thread. Keep one object for many waits, since it adapts. Each yield halves the number of
/// polls before the next yield, since the awaited thread may need this very core. Each wait that ends without a yield
/// doubles that number again. So two ranks that share one core for a while soon hand the core over after few polls.
class Backoff {
 public:
  explicit Backoff(SpinPolicy p) : spin_policy_(p), spins_(p.spins) {}
  /// Makes one step: a poll's pause, a yield or a sleep.
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
  std::int64_t yielded_ = 0;  ///< number of yields in this wait; 64 bits, since a wait may last for days
};

}  // namespace gradmeter::runtime
