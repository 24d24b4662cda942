// SPDX-License-Identifier: Apache-2.0
// What a device of the emulator has. Made up: kernels must not depend on them.
#pragma once
#include <cstddef>

namespace cuda_emulator::limits {

inline constexpr int multiprocessors = 4;
inline constexpr int threads_of_block = 1024;
inline constexpr int threads_of_multiprocessor = 2048;
inline constexpr int blocks_of_multiprocessor = 32;
inline constexpr int shared_bytes_of_block = 48 << 10;
inline constexpr int shared_bytes_of_multiprocessor = 228 << 10;
inline constexpr int least_priority = 0, greatest_priority = -5;
inline constexpr std::size_t memory_bytes = std::size_t{1} << 34;

}  // namespace cuda_emulator::limits
