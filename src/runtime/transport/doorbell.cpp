#include "runtime/transport/doorbell.hpp"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cmath>

namespace gradmeter::runtime {

static_assert(sizeof(std::atomic<std::uint32_t>) == sizeof(std::uint32_t), "a futex is a word");

// Of two fences one is first: either the ringer sees that it is armed, or the sleeper sees the message.
void Doorbell::arm(bool yes) {
  memory_->armed.store(yes ? 1 : 0, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

void Doorbell::ring() {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (memory_->armed.load(std::memory_order_relaxed) != 0) wake();
}

// Both calls may fail where another process has been quicker: then there is nothing to sleep or to wake for.
void Doorbell::sleep(std::uint32_t seen, double at_most) {
  const double whole = std::floor(at_most);
  const timespec limit{static_cast<time_t>(whole), static_cast<long>((at_most - whole) * 1e9)};
  syscall(SYS_futex, &memory_->rings, FUTEX_WAIT, seen, &limit, nullptr, 0);
}

void Doorbell::wake() {
  memory_->rings.fetch_add(1, std::memory_order_seq_cst);
  syscall(SYS_futex, &memory_->rings, FUTEX_WAKE, 1, nullptr, nullptr, 0);
}

}  // namespace gradmeter::runtime
