// SPDX-License-Identifier: Apache-2.0
#include "runtime/threads/this_thread.hpp"

#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace gradmeter::runtime {
namespace {

/// The kernel's structure of sched_setattr(2). glibc of Debian 12 declares neither the structure nor the function.
struct SchedulerAttributes {
  std::uint32_t size = sizeof(SchedulerAttributes), policy = 0;
  std::uint64_t flags = 0;
  std::int32_t nice = 0;
  std::uint32_t priority = 0;
  std::uint64_t runtime_ns = 0, deadline_ns = 0, period_ns = 0;
};

}  // namespace

void request_short_time_slices() {
  // If either call is refused, the thread is slower, not wrong.
  constexpr unsigned long slack_ns = 1000;
  prctl(PR_SET_TIMERSLACK, slack_ns);
  SchedulerAttributes a;
  if (syscall(SYS_sched_getattr, 0, &a, sizeof a, 0) != 0 || a.policy != 0) return;
  a.runtime_ns = 100'000;  // the least that the kernel takes
  syscall(SYS_sched_setattr, 0, &a, 0);
}

void flush_subnormals() {
#if defined(__x86_64__)
  constexpr unsigned int results = 1U << 15, operands = 1U << 6;
  _mm_setcsr(_mm_getcsr() | results | operands);
#elif defined(__aarch64__)
  constexpr std::uint64_t both = std::uint64_t{1} << 24;
  std::uint64_t control = 0;
  asm volatile("mrs %0, fpcr" : "=r"(control));
  asm volatile("msr fpcr, %0" : : "r"(control | both));
#endif
}

}  // namespace gradmeter::runtime
