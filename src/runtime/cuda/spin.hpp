// SPDX-License-Identifier: Apache-2.0
// Functions for kernels that wait in a loop for another GPU, and give up after some time: a read of a word that another
// processor writes, and a clock.
#pragma once
#include "runtime/cuda/launch.hpp"

#ifdef GRADMETER_CUDA_EMULATED
#include <chrono>
#endif

namespace gradmeter::gpu {

#ifdef GRADMETER_CUDA_EMULATED
/// A loop that waits for a flag reads the flag in every turn, and after this many turns also checks whether to give up.
inline constexpr unsigned turns_between_checks = 4;
inline std::uint32_t load_relaxed(std::uint32_t* at) { return std::atomic_ref(*at).load(std::memory_order_relaxed); }
inline std::uint64_t nanoseconds() {
  return static_cast<std::uint64_t>(
      std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count());
}
#else
/// A loop that waits for a flag reads the flag in every turn. After this many turns, which take some tens of
/// microseconds, it also checks whether to give up, by reading other words of memory and a clock. It does so rarely
/// because reading a word in the host's memory takes one or two microseconds.
inline constexpr unsigned turns_between_checks = 1024;
/// Reads a word that another thread, GPU or the host may be writing. It implies no order of memory accesses.
__device__ inline std::uint32_t load_relaxed(std::uint32_t* at) {
  std::uint32_t value;
  asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(at) : "memory");
  return value;
}
/// A clock that does not change its rate with the GPU's frequency. Source: PTX ISA, "Special registers", %globaltimer
__device__ inline std::uint64_t nanoseconds() {
  std::uint64_t now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}
#endif

}  // namespace gradmeter::gpu
