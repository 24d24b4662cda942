// SPDX-License-Identifier: Apache-2.0
#include "runtime/threads/backoff.hpp"

#include <sched.h>
#include <time.h>

#include <algorithm>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace gradmeter::runtime {
namespace {

constexpr int least_spins = 10;

}  // namespace

SpinPolicy spin_policy_for(int runnable, int cores) {
  if (runnable <= cores) return {.spins = 200, .yields = 0};
  return {.spins = 20, .yields = 2000};
}

void Backoff::reset() {
  if (yielded_ == 0) spins_ = std::min(spin_policy_.spins, 2 * spins_);
  spun_ = 0;
  yielded_ = 0;
}

void Backoff::wait() {
  if (spun_ < spins_) {
    ++spun_;
#if defined(__x86_64__)
    _mm_pause();
#endif
    return;
  }
  spun_ = 0;
  spins_ = std::min(spin_policy_.spins, std::max(least_spins, spins_ / 2));
  if (spin_policy_.yields == 0 || yielded_ < spin_policy_.yields) {
    ++yielded_;
    sched_yield();
    return;
  }
  // The wait is long and cores are shared: a sleep of 20 us costs the waiting thread little, and gives a working thread
  // the core.
  constexpr timespec nap{0, 20'000};
  nanosleep(&nap, nullptr);
}

}  // namespace gradmeter::runtime
