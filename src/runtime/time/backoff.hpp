// How to wait for something that another core does: spin while a core is ours, give it away when it is not.
#pragma once
#include <cstdint>

namespace gradmeter::runtime {

/// Measured on 2 cores: with 4 ranks an 8-byte all-reduce took 33 us when each polled 2000 times before yielding and
/// 2.7 us with 20 (and 0.8 us on 2 ranks with a core each, spinning): so the counts follow oversubscription. With a
/// core each, 200 polls are some 10 us: longer than a small message takes, and short enough that two ranks which the
/// system has put on one core for a while do not make each other's messages 50 us long, as they did with 2000.
struct SpinPolicy {
  int spins;   ///< polls with a pause between, before giving the core away
  int yields;  ///< sched_yield calls before sleeping; 0: never sleep
};
/// `runnable`: busy threads on this node; `cores`: cores they may use.
SpinPolicy spin_policy_for(int runnable, int cores);

/// Keep one for many waits: it learns. Each yield halves the polls before the next one, since whoever is awaited may
/// want this very core; each wait that ends without a yield doubles them again. So two ranks that the system has put on
/// one core for a while hand it over at once.
class Backoff {
 public:
  explicit Backoff(SpinPolicy p) : spin_policy_(p), spins_(p.spins) {}
  void wait();
  /// What was waited for is there.
  void reset();
  /// Are cores shared, so that a long wait sleeps?
  bool may_sleep() const { return spin_policy_.yields > 0; }
  /// Polls before the next yield, as learned.
  int spins() const { return spins_; }

 private:
  SpinPolicy spin_policy_;
  int spins_;
  int spun_ = 0;
  std::int64_t yielded_ = 0;  ///< in one wait, which may last for days
};

}  // namespace gradmeter::runtime
