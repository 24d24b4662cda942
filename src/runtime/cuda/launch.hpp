// SPDX-License-Identifier: Apache-2.0
// Every .cu file includes this header, which makes it one source for nvcc and, in the tests' emulated build, for g++.
// A kernel is a __global__ function with plain parameters. It takes shared memory by GPU_SHARED or `dynamic_shared`,
// pauses in every loop that waits for another block, and is launched by `gpu::launch`, never by <<<...>>>.
#pragma once
#include <cuda_runtime_api.h>

#include <atomic>
#include <cstdint>
#include <type_traits>

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
/// The shared memory that the launch asked for, aligned to 16 bytes.
template <class T>
__device__ T* dynamic_shared() {
  extern __shared__ __align__(16) unsigned char gpu_dynamic_shared_bytes[];
  return reinterpret_cast<T*>(gpu_dynamic_shared_bytes);
}
/// Waits for all blocks of a cooperative launch.
__device__ inline void grid_barrier() { cooperative_groups::this_grid().sync(); }
/// Belongs in every loop that waits for another block or another GPU.
__device__ inline void spin_pause() { __nanosleep(20); }
/// Stores for every thread of every GPU and the host: a thread that reads the value also sees all that this thread has
/// seen before. Source: PTX ISA, "Memory consistency model", scope .sys
__device__ inline void release_to_all(std::uint32_t* at, std::uint32_t value) {
  asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(at), "r"(value) : "memory");
}
__device__ inline std::uint32_t acquire_from_all(std::uint32_t* at) {
  std::uint32_t value;
  asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(at) : "memory");
  return value;
}
#endif

struct Shape {
  dim3 grid, block;
  unsigned shared_bytes = 0;
  bool cooperative = false;  ///< all blocks run at once
};

/// kernel<<<...>>> as a call with a result that both compilers take. Arguments convert as in a call.
template <class... P>
[[nodiscard]] cudaError_t launch(void (*kernel)(P...), const Shape& shape, cudaStream_t stream,
                                 std::type_identity_t<P>... arguments) {
  static_assert(((std::is_trivially_copyable_v<P> && !std::is_reference_v<P>)&&...), "kernels take plain values");
  const auto* const function = reinterpret_cast<const void*>(kernel);
#ifdef GRADMETER_CUDA_EMULATED
  cuda_emulator::know_kernel(function, &cuda_emulator::bind<P...>);
#endif
  void* addresses[] = {const_cast<void*>(static_cast<const void*>(&arguments))..., nullptr};
  const auto& [grid, block, shared, cooperative] = shape;
  return cooperative ? cudaLaunchCooperativeKernel(function, grid, block, addresses, shared, stream)
                     : cudaLaunchKernel(function, grid, block, addresses, shared, stream);
}

}  // namespace gradmeter::gpu
