// What kernels that read the memory of other GPUs share: barriers between GPUs, and who works on which elements.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "allreduce/cuda/packs.cuh"
#include "allreduce/cuda/peer_window.hpp"
#include "runtime/cuda/launch.hpp"

namespace gradmeter::allreduce::cuda {

inline constexpr unsigned peer_threads = 256;

/// Where block `block` of rank `from` says in `window` which barrier it has reached.
__device__ inline std::uint32_t* flag_of(std::byte* window, unsigned block, unsigned from) {
  return reinterpret_cast<std::uint32_t*>(window) + block * most_peers + from;
}

/// One thread: tells rank `to` that this block has reached a barrier, and waits until rank `from` has. Numbers grow,
/// and wrap: a difference says who is behind.
__device__ inline void signal_and_wait(const PeerCall& c, unsigned to, unsigned from, std::uint32_t number) {
  gpu::release_to_all(flag_of(c.windows[to], blockIdx.x, c.rank), number);
  std::uint32_t* const theirs = flag_of(c.windows[c.rank], blockIdx.x, from);
  while (static_cast<std::int32_t>(gpu::acquire_from_all(theirs) - number) < 0) gpu::spin_pause();
}

/// Blocks of this number of all GPUs: whoever leaves sees what the others wrote before they came.
__device__ inline void peer_barrier(const PeerCall& c, std::uint32_t number) {
  __syncthreads();
  if (threadIdx.x < c.ranks) signal_and_wait(c, threadIdx.x, threadIdx.x, number);
  __syncthreads();
}

/// What of a call depends on how many there were. GPUs count calls themselves, so that a graph may launch one again.
struct CallNumbers {
  unsigned slot;          ///< place that holds what is given
  std::uint32_t barrier;  ///< the call's first
};

__device__ inline std::uint32_t* counts_of(const PeerCall& c) {
  return reinterpret_cast<std::uint32_t*>(c.windows[c.rank] + PeerWindow::counts());
}

__device__ inline CallNumbers numbers_of(const PeerCall& c) {
  const std::uint32_t calls = counts_of(c)[0];
  return {calls % 2, c.barriers * calls + 1};
}

/// At the end of a call, by all threads. The last block counts it: by then all have read the number, since each call
/// has a barrier before its end.
__device__ inline void count_call(const PeerCall& c) {
  if (threadIdx.x != 0) return;
  std::uint32_t* const counts = counts_of(c);
  __threadfence();
  if (atomicAdd(&counts[1], 1U) + 1 < gridDim.x) return;
  __threadfence();
  atomicExch(&counts[1], 0U);  // not a plain store: others have added to it since their fences
  ++counts[0];
}

/// As allreduce::finish, on the result that memory holds.
template <class Format>
__device__ void scale_pack(Pack<typename Format::Memory>& p, double factor) {
  if constexpr (std::is_floating_point_v<typename Format::Value>) {
    if (factor == 1) return;
    const auto f = static_cast<typename Format::Value>(factor);
    for (auto& v : p.v) v = Format::store(Format::load(v) * f);
  }
}

/// Packs of a block of elements, dealt out to the threads of the grid: pack k of a block is the same thread's on every
/// GPU.
template <class T>
struct Packs {
  std::size_t begin, end;
  __device__ std::size_t first() const {
    return begin + Pack<T>::count * (std::size_t{blockIdx.x} * blockDim.x + threadIdx.x);
  }
  static __device__ std::size_t step() { return Pack<T>::count * std::size_t{gridDim.x} * blockDim.x; }
};

/// Of the longest stretch of elements that the grid works on at a time. The same on all GPUs.
template <class T>
gpu::Shape shape_of(std::size_t elements, unsigned most_blocks) {
  const std::size_t packs = (elements + Pack<T>::count - 1) / Pack<T>::count;
  const std::size_t blocks = std::clamp<std::size_t>((packs + peer_threads - 1) / peer_threads, 1, most_blocks);
  return {.grid = dim3(static_cast<unsigned>(blocks)), .block = dim3(peer_threads), .cooperative = true};
}

template <class Kernel>
void launch_op(Op op, const Kernel& kernel) {
  if (op == Op::min) return kernel.template operator()<Op::min>();
  if (op == Op::max) return kernel.template operator()<Op::max>();
  if (op == Op::product) return kernel.template operator()<Op::product>();
  kernel.template operator()<Op::sum>();
}

__host__ __device__ inline bool has_whole_packs(const void* address) {
  return reinterpret_cast<std::uintptr_t>(address) % 16 == 0;
}

}  // namespace gradmeter::allreduce::cuda
