// A thread or a warp for each element, and what such kernels share.
#pragma once
#include <cstddef>
#include <stdexcept>
#include <string>
#include <type_traits>

#include "runtime/cuda/handles.hpp"
#include "runtime/cuda/launch.hpp"

namespace gradmeter::kernels::cuda {

inline constexpr unsigned threads_for_each = 256, warps_for_each = threads_for_each / 32;

__device__ inline std::size_t element_of_thread() { return std::size_t{blockIdx.x} * blockDim.x + threadIdx.x; }
__device__ inline std::size_t element_of_warp() { return std::size_t{blockIdx.x} * warps_for_each + threadIdx.x / 32; }

/// Of a kernel that asks for `element_of_warp`.
inline gpu::Shape warp_for_each(std::size_t n) {
  return {.grid = dim3(static_cast<unsigned>((n + warps_for_each - 1) / warps_for_each)),
          .block = dim3(threads_for_each)};
}

/// 1 / (1 + exp(-x)), from exp(-|x|), which never overflows.
__device__ inline float sigmoid(float x) {
  const float e = expf(-fabsf(x));
  return (x < 0 ? e : 1.0f) / (1 + e);
}

/// Nothing for n = 0: CUDA refuses empty grids.
template <class... P>
void launch_each(void (*kernel)(P...), const char* name, std::size_t n, cudaStream_t stream,
                 std::type_identity_t<P>... arguments) {
  if (n == 0) return;
  const auto blocks = static_cast<unsigned>((n + threads_for_each - 1) / threads_for_each);
  runtime::check_cuda(
      gpu::launch(kernel, {.grid = dim3(blocks), .block = dim3(threads_for_each)}, stream, arguments...), name);
}

/// By hand: nvcc does not compile fmt's checks of formats.
inline void check_lengths(const char* what, std::size_t given, std::size_t expected) {
  if (given == expected) return;
  throw std::invalid_argument(std::string(what) + ": " + std::to_string(given) + " elements given where " +
                              std::to_string(expected) + " belong");
}

}  // namespace gradmeter::kernels::cuda
