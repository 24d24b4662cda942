// SPDX-License-Identifier: Apache-2.0
// Every .cu file includes this header, so that both nvcc and, in the tests' emulated build, g++ can compile it. A
// kernel is a __global__ function with plain parameters. It gets shared memory by GPU_SHARED or `dynamic_shared`, calls
// `spin_pause` in every loop that waits for another block, and is launched by `gpu::launch`, never by <<<...>>>.
#pragma once
#include <cuda_runtime_api.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <source_location>
#include <string>
#include <type_traits>
#include <utility>

#include "runtime/cuda/handles.hpp"

#ifdef GRADMETER_CUDA_EMULATED
#include <cuda_emulator/device.hpp>
#define GPU_SHARED(type, name, extent)       \
  static const char name##_key = 0;          \
  auto& name = *static_cast<type(*) extent>( \
      cuda_emulator::shared_memory(&name##_key, sizeof(type extent)))  // extent: [n], or empty
#else
#include <cooperative_groups.h>
#define GPU_SHARED(type, name, extent) __shared__ type name extent
#endif

namespace gradmeter::gpu {

#ifdef GRADMETER_CUDA_EMULATED
template <class T>
T* dynamic_shared() {
  return static_cast<T*>(cuda_emulator::dynamic_shared_memory());
}
inline void grid_barrier(cuda_emulator::Site site = cuda_emulator::Site::current()) {
  cuda_emulator::grid_barrier(site);
}
inline void spin_pause() { cuda_emulator::yield(); }
inline void release_to_all(std::uint32_t* at, std::uint32_t value) {
  std::atomic_ref(*at).store(value, std::memory_order_release);
}
inline std::uint32_t acquire_from_all(std::uint32_t* at) {
  return std::atomic_ref(*at).load(std::memory_order_acquire);
}
#else
/// The shared memory that the launch has reserved (`Shape::shared_bytes`), aligned to 16 bytes.
template <class T>
__device__ T* dynamic_shared() {
  extern __shared__ __align__(16) unsigned char gpu_dynamic_shared_bytes[];
  return reinterpret_cast<T*>(gpu_dynamic_shared_bytes);
}
/// Waits for all blocks of a cooperative launch.
__device__ inline void grid_barrier() { cooperative_groups::this_grid().sync(); }
/// Pauses a little. It belongs in every loop that waits for another block or another GPU.
__device__ inline void spin_pause() { __nanosleep(20); }
/// Stores a value for all threads of all GPUs and the host. A thread that reads the value by `acquire_from_all` also
/// sees everything that this thread wrote or saw before it stored the value. Source: PTX ISA, "Memory consistency
/// model", scope .sys
__device__ inline void release_to_all(std::uint32_t* at, std::uint32_t value) {
  asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(at), "r"(value) : "memory");
}
__device__ inline std::uint32_t acquire_from_all(std::uint32_t* at) {
  std::uint32_t value;
  asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(at) : "memory");
  return value;
}
#endif

/// The extents of a launch, and the bytes of shared memory for each block.
struct Shape {
  dim3 grid, block;
  unsigned shared_bytes = 0;
  bool cooperative = false;  ///< all blocks run at once
};

/// The limits of a grid and a block that all devices have. Source: CUDA C++ Programming Guide, "Compute Capabilities"
inline constexpr unsigned most_blocks_in_x = 2'147'483'647, most_blocks_in_y_or_z = 65'535, most_threads = 1024;

inline bool fits_devices(const Shape& s) {
  const auto& [grid, block] = std::pair(s.grid, s.block);
  const std::uint64_t threads = std::uint64_t{block.x} * block.y * block.z;
  return grid.x > 0 && grid.x <= most_blocks_in_x && grid.y > 0 && grid.y <= most_blocks_in_y_or_z && grid.z > 0 &&
         grid.z <= most_blocks_in_y_or_z && threads > 0 && threads <= most_threads;
}

/// The number of blocks for `elements` elements, with `each` elements in a block. A number beyond 32 bits gives the
/// largest one, which `launch` refuses.
inline unsigned blocks_of(std::size_t elements, std::size_t each) {
  const std::size_t blocks = elements / each + (elements % each == 0 ? 0 : 1);
  constexpr std::size_t most = std::numeric_limits<unsigned>::max();
  return static_cast<unsigned>(blocks < most ? blocks : most);
}

/// The outcome of a launch, which `runtime::check_cuda` takes with the kernel's name.
struct [[nodiscard]] Launched {
  cudaError_t error;
  dim3 grid, block;
};

/// Does what kernel<<<...>>> does, as a call that both compilers understand. Arguments are converted as in a call. A
/// shape that no device accepts is refused here, so that the limits are in one place.
template <class... P>
Launched launch(void (*kernel)(P...), const Shape& shape, cudaStream_t stream, std::type_identity_t<P>... arguments) {
  static_assert(((std::is_trivially_copyable_v<P> && !std::is_reference_v<P>)&&...), "kernels take plain values");
  const auto* const function = reinterpret_cast<const void*>(kernel);
#ifdef GRADMETER_CUDA_EMULATED
  cuda_emulator::know_kernel(function, &cuda_emulator::bind<P...>);
#endif
  void* addresses[] = {const_cast<void*>(static_cast<const void*>(&arguments))..., nullptr};
  const auto& [grid, block, shared, cooperative] = shape;
  if (!fits_devices(shape)) return {cudaErrorInvalidConfiguration, grid, block};
  return {cooperative ? cudaLaunchCooperativeKernel(function, grid, block, addresses, shared, stream)
                      : cudaLaunchKernel(function, grid, block, addresses, shared, stream),
          grid, block};
}

}  // namespace gradmeter::gpu

namespace gradmeter::runtime {

/// Throws if a launch failed. Errors: BackendError that names the kernel, with CUDA's own text or the limits that the
/// grid exceeds. The text is built without fmt, since nvcc does not compile fmt's checks of format strings.
inline void check_cuda(const gpu::Launched& launched, const char* kernel,
                       std::source_location where = std::source_location::current()) {
  const auto& [error, grid, block] = launched;
  if (error == cudaSuccess) return note_gpu_work(kernel);
  if (gpu::fits_devices({.grid = grid, .block = block})) return check_cuda(error, kernel, where);
  const auto extents = [](const dim3& d) {
    return std::to_string(d.x) + " x " + std::to_string(d.y) + " x " + std::to_string(d.z);
  };
  throw core::BackendError("CUDA", kernel,
                           "no device takes a grid of " + extents(grid) + " blocks of " + extents(block) +
                               " threads: at most 2147483647 x 65535 x 65535 blocks of 1024 threads",
                           where);
}

}  // namespace gradmeter::runtime
