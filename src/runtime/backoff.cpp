#include "runtime/backoff.hpp"

#include <sched.h>
#include <time.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace gradmeter::runtime {

Patience patience_for(int runnable, int cores) {
  if (runnable <= cores) return {.spins = 2000, .yields = 0};
  return {.spins = 20, .yields = 2000};
}

void Backoff::wait() {
  if (spun_ < patience_.spins) {
    ++spun_;
#if defined(__x86_64__)
    _mm_pause();
#endif
    return;
  }
  spun_ = 0;
  if (patience_.yields == 0 || yielded_ < patience_.yields) {
    ++yielded_;
    sched_yield();
    return;
  }
  // Long idle on a crowded machine: 20 us of sleep costs the waiter little and gives the worker a core.
  constexpr timespec nap{0, 20'000};
  nanosleep(&nap, nullptr);
}

}  // namespace gradmeter::runtime
