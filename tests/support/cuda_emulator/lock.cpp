// SPDX-License-Identifier: Apache-2.0
#include "support/cuda_emulator/lock.hpp"

#include <atomic>
#include <thread>
#include <utility>

#include "support/cuda_emulator/memory.hpp"

namespace cuda_emulator {
namespace {

std::mutex mutex;
thread_local unsigned depth = 0;
std::atomic<unsigned> waiting = 0;
std::atomic<std::uint64_t> calls = 0;

void lock_mutex() {
  const WithoutOrder unordered;
  ++waiting;
  mutex.lock();
  --waiting;
}
void unlock_mutex() {
  const WithoutOrder unordered;
  mutex.unlock();
}

}  // namespace

Lock::Lock() {
  if (depth++ > 0) return;
  lock_mutex();
  ++calls;
}
Lock::~Lock() {
  if (--depth > 0) return;
  close_device();
  unlock_mutex();
}

Unlocked::Unlocked() : depth_(std::exchange(depth, 0)) {
  close_device();
  unlock_mutex();
}
Unlocked::~Unlocked() {
  lock_mutex();
  depth = depth_;
}

void hand_over() {
  if (waiting.load() == 0) return;
  const unsigned before = std::exchange(depth, 0);
  unlock_mutex();
  std::this_thread::yield();
  lock_mutex();
  depth = before;
}
std::uint64_t calls_so_far() { return calls.load(); }

}  // namespace cuda_emulator
