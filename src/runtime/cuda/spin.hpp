// SPDX-License-Identifier: Apache-2.0
// What a loop of a kernel needs to wait for another GPU no longer than it may: words that others write, and a clock.
#pragma once
#include "runtime/cuda/launch.hpp"

#ifdef GRADMETER_CUDA_EMULATED
#include <chrono>
#endif

namespace gradmeter::gpu {

#ifdef GRADMETER_CUDA_EMULATED
/// Turns of a waiting loop between two looks at the words that end it.
inline constexpr unsigned turns_between_looks = 4;
inline std::uint32_t look_at(std::uint32_t* at) { return std::atomic_ref(*at).load(std::memory_order_relaxed); }
inline std::uint64_t nanoseconds() {
  return static_cast<std::uint64_t>(
      std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count());
}
#else
/// Turns of a waiting loop between two looks at the words that end it: some tens of microseconds, since a look at the
/// host's memory takes one or two.
inline constexpr unsigned turns_between_looks = 1024;
/// Reads what another thread, GPU or the host may write now. It orders nothing.
__device__ inline std::uint32_t look_at(std::uint32_t* at) {
  std::uint32_t value;
  asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(at) : "memory");
  return value;
}
/// A clock that goes on while a GPU changes its frequency. Source: PTX ISA, "Special registers", %globaltimer
__device__ inline std::uint64_t nanoseconds() {
  std::uint64_t now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}
#endif

}  // namespace gradmeter::gpu
