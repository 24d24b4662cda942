// SPDX-License-Identifier: Apache-2.0
// Helpers of kernels that have a thread or a warp for each element: the element's index, the launch, and loads and
// stores of numbers.
#pragma once
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <type_traits>

#include "core/element.hpp"
#include "core/host_device.hpp"
#include "kernels/pointwise/pointwise.hpp"
#include "runtime/cuda/handles.hpp"
#include "runtime/cuda/launch.hpp"

namespace gradmeter::kernels::cuda {

inline constexpr unsigned threads_of_block = 256, warps_of_block = threads_of_block / 32;

__device__ inline std::size_t element_of_thread() { return std::size_t{blockIdx.x} * blockDim.x + threadIdx.x; }
__device__ inline std::size_t element_of_warp() { return std::size_t{blockIdx.x} * warps_of_block + threadIdx.x / 32; }

/// The grid of a kernel that uses `element_of_warp`.
inline gpu::Shape warp_for_each(std::size_t n) {
  return {.grid = dim3(gpu::blocks_of(n, warps_of_block)), .block = dim3(threads_of_block)};
}

/// 1 / (1 + exp(-x)), from exp(-|x|), which never overflows.
__device__ inline float sigmoid(float x) {
  const float e = expf(-fabsf(x));
  return (x < 0 ? e : 1.0f) / (1 + e);
}

/// Launches a kernel with one thread for each element; launches nothing for n = 0, since CUDA refuses empty grids.
template <class... Parameters>
void launch_each(void (*kernel)(Parameters...), const char* name, std::size_t n, cudaStream_t stream,
                 std::type_identity_t<Parameters>... arguments) {
  if (n == 0) return;
  const gpu::Shape shape{.grid = dim3(gpu::blocks_of(n, threads_of_block)), .block = dim3(threads_of_block)};
  runtime::check_cuda(gpu::launch(kernel, shape, stream, arguments...), name);
}

/// Throws std::invalid_argument unless the lengths are equal. The message is built without fmt, whose checks of formats
/// nvcc cannot compile.
inline void check_lengths(const char* what, std::size_t given, std::size_t expected) {
  if (given == expected) return;
  throw std::invalid_argument(std::string(what) + ": " + std::to_string(given) + " elements given where " +
                              std::to_string(expected) + " belong");
}

/// Loads and stores convert between the format in memory and fp32; 16-bit formats are rounded to nearest even.
__device__ inline float load(const float* from) { return *from; }
__device__ inline float load(const Bf16* from) { return core::bits_as<float>(static_cast<std::uint32_t>(*from) << 16); }
__device__ inline float load(const Fp16* from) {
  return core::to_float(core::fp16_format, static_cast<std::uint16_t>(*from));
}
__device__ inline void store(float v, float* to) { *to = v; }
__device__ inline void store(float v, Bf16* to) { *to = Bf16{core::rounded_code<core::bf16_format>(v)}; }
__device__ inline void store(float v, Fp16* to) { *to = Fp16{core::rounded_code<core::fp16_format>(v)}; }

}  // namespace gradmeter::kernels::cuda
