// SPDX-License-Identifier: Apache-2.0
// The common part of all kernels that read the memory of other GPUs: barriers between GPUs, the split of the elements,
// and copies with several loads under way.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "allreduce/gpu/packs.cuh"
#include "allreduce/gpu/peer_kernels.hpp"
#include "allreduce/reduce.hpp"
#include "runtime/cuda/handles.hpp"
#include "runtime/cuda/launch.hpp"
#include "runtime/cuda/spin.hpp"

namespace gradmeter::allreduce::cuda {

// NVLink between two H100s needs about 1 MB under way to be busy. That is reached by 36 blocks of 512 threads if each
// thread has four loads of 16 bytes from peers under way (scripts/count-instructions.py counts these loads).
inline constexpr unsigned peer_threads = 512;
/// Packs that a thread copies at once.
inline constexpr unsigned packs_of_copy = 8;
/// Packs that a thread combines at once, so few that their sums fit into its 128 registers: a pack of 8-bit floats
/// makes 16 sums in fp32. Operations on small floats other than sums are rare, so they get short code: one pack.
template <class Format, Op op, unsigned ranks = any_source_count>
inline constexpr unsigned packs_of_sum = is_small<Format>&& op != Op::sum                                          ? 1
                                         : ranks > 2 || (is_small<Format> && sizeof(typename Format::Memory) == 1) ? 2
                                                                                                                   : 4;

/// The flag in `window` by which block `block` of rank `from` says which barrier it has reached.
__device__ inline std::uint32_t* flag_of(std::byte* window, unsigned block, unsigned from) {
  return reinterpret_cast<std::uint32_t*>(window) + block * most_peers + from;
}

__device__ inline std::uint32_t* counts_of(const PeerArguments& c) {
  return reinterpret_cast<std::uint32_t*>(c.windows[c.rank] + PeerWindow::counts_offset());
}
/// The word of this GPU's window that says whether one of its blocks has given up a barrier.
__device__ inline std::uint32_t* given_up_of(const PeerArguments& c) { return counts_of(c) + 2; }

/// The values of a call that depend on how many calls came before. GPUs themselves count the calls, so that a graph
/// that holds a call may be launched again.
struct CallNumbers {
  unsigned slot;          ///< the window's slot for this rank's data
  std::uint32_t barrier;  ///< number of the call's first barrier
  bool is_given_up;       ///< a barrier was given up, so peers' memory may be gone
};

/// A word that the threads of this thread block share. Not 0: one of them has given up a barrier.
__device__ inline std::uint32_t& block_gives_up() {
  GPU_SHARED(std::uint32_t, word, [1]);
  return word[0];
}

/// To be called by all threads at the beginning of a call.
__device__ inline CallNumbers begin_call(const PeerArguments& c) {
  if (threadIdx.x == 0) block_gives_up() = 0;
  const std::uint32_t calls = counts_of(c)[0];
  return {calls % 2, c.barriers_per_call * calls + 1, gpu::load_relaxed(given_up_of(c)) != 0};
}

/// True if a wait that began at the time `begin` must end without the flag: the host says so, another block of this GPU
/// has given up, or the wait is too long.
__device__ inline bool must_leave(const PeerArguments& c, unsigned from, std::uint64_t begin) {
  if (gpu::load_relaxed(given_up_of(c)) != 0) return true;
  const bool is_late = gpu::nanoseconds() - begin > c.limit_ns;
  if (!is_late && gpu::load_relaxed(&c.signals->leave) == 0) return false;
  if (is_late) gpu::release_to_all(&c.signals->waited_for, from + 1);
  gpu::release_to_all(given_up_of(c), 1);
  return true;
}

/// To be called by one thread. Waits until rank `from` has reached the barrier `number`; false: the barrier was given
/// up. Barrier numbers may wrap, so the sign of their difference says which barrier is later.
__device__ inline bool await_flag(const PeerArguments& c, unsigned from, std::uint32_t number) {
  std::uint32_t* const theirs = flag_of(c.windows[c.rank], blockIdx.x, from);
  std::uint64_t begin = 0;  // time of the first look at the clock; most waits end before it
  for (unsigned turns = 1; static_cast<std::int32_t>(gpu::acquire_from_all(theirs) - number) < 0; ++turns) {
    gpu::spin_pause();
    if (turns % gpu::turns_between_checks != 0) continue;
    if (begin == 0) begin = gpu::nanoseconds();
    if (must_leave(c, from, begin)) return false;
  }
  return true;
}

/// To be called by one thread. Tells rank `to` that this block has reached a barrier, and waits until rank `from` has
/// reached it.
__device__ inline void signal_and_wait(const PeerArguments& c, const CallNumbers& call, unsigned to, unsigned from,
                                       std::uint32_t number) {
  bool has_come = false;
  if (!call.is_given_up) {
    gpu::release_to_all(flag_of(c.windows[to], blockIdx.x, c.rank), number);
    has_come = await_flag(c, from, number);
  }
  if (!has_come) atomicExch(&block_gives_up(), 1U);
}

/// A barrier between the blocks that have the same index on all GPUs. A block that passes it sees what the others wrote
/// before they arrived. False: the barrier was given up, and the block must leave the kernel.
__device__ inline bool peer_barrier(const PeerArguments& c, const CallNumbers& call, std::uint32_t number) {
  __syncthreads();
  if (threadIdx.x < c.ranks) signal_and_wait(c, call, threadIdx.x, threadIdx.x, number);
  __syncthreads();
  return block_gives_up() == 0;
}

/// To be called by all threads at the end of a call. The last block to come counts the call. By then all threads have
/// read the old count, since each call has a barrier before its end.
__device__ inline void count_call(const PeerArguments& c) {
  if (threadIdx.x != 0) return;
  std::uint32_t* const counts = counts_of(c);
  __threadfence();
  if (atomicAdd(&counts[1], 1U) + 1 < gridDim.x) return;
  __threadfence();
  atomicExch(&counts[1], 0U);  // all blocks have added; the next call begins at 0
  ++counts[0];
}

/// Multiplies each result in the pack by `factor`, as allreduce::finish does for an average on the host.
template <class Format>
__device__ void scale_pack(Pack<typename Format::Memory>& p, double factor) {
  if constexpr (std::is_floating_point_v<typename Format::Value>) {
    if (factor == 1) return;
    const auto f = static_cast<typename Format::Value>(factor);
    for (auto& v : p.v) v = Format::store(Format::load(v) * f);
  }
}

/// The packs of a block of elements, dealt out to the threads of the grid. Pack k of a block goes to the same thread on
/// every GPU.
template <class T>
struct PackRange {
  std::size_t begin, end;
  __device__ std::size_t first() const {
    return begin + Pack<T>::count * (std::size_t{blockIdx.x} * blockDim.x + threadIdx.x);
  }
  static __device__ std::size_t step() { return Pack<T>::count * std::size_t{gridDim.x} * blockDim.x; }

  /// Visits this thread's packs: calls several(first element) for every `packs` packs, which are whole and step()
  /// apart, and then one(first element) for each pack that is left. If `several_at_once` is false, it calls only `one`.
  template <unsigned packs, class Several, class One>
  __device__ void each(bool several_at_once, const Several& several, const One& one) const {
    std::size_t i = first();
    if (several_at_once)
      for (const std::size_t last = (packs - 1) * step(); is_whole<T>(i + last, end); i += packs * step()) several(i);
    for (; i < end; i += step()) one(i);
  }
};

/// Copies packs from `from` to `to` and to `also`, either of which may be null. If all addresses are aligned, several
/// loads are under way at once; else elements are copied one by one. `to_is_aligned` holds for `also`, too.
template <class T>
__device__ void copy_packs(const PackRange<T>& packs, const std::byte* from, bool from_is_aligned, std::byte* to,
                           bool to_is_aligned, std::byte* also = nullptr) {
  packs.template each<packs_of_copy>(
      from_is_aligned && to_is_aligned,
      [&](std::size_t i) {
        uint4 p[packs_of_copy];
        GPU_UNROLL
        for (unsigned u = 0; u < packs_of_copy; ++u) p[u] = whole_pack<T>(from, i + u * packs.step());
        GPU_UNROLL
        for (unsigned u = 0; u < packs_of_copy; ++u) {
          if (to) write_whole_pack<T>(p[u], to, i + u * packs.step());
          if (also) write_whole_pack<T>(p[u], also, i + u * packs.step());
        }
      },
      [&](std::size_t i) {
        const Pack<T> p = read_pack<T>(from, from_is_aligned, i, packs.end);
        if (to) write_pack<T>(p, to, to_is_aligned, i, packs.end);
        if (also) write_pack<T>(p, also, to_is_aligned, i, packs.end);
      });
}

/// The launch shape of a kernel whose longest pass over packs has `elements` elements: a thread for each pack, in at
/// most `most_blocks` blocks. `elements` must be the same on all GPUs.
template <class T>
gpu::Shape shape_of(std::size_t elements, unsigned most_blocks) {
  const std::size_t packs = (elements + Pack<T>::count - 1) / Pack<T>::count;
  const std::size_t blocks = std::clamp<std::size_t>((packs + peer_threads - 1) / peer_threads, 1, most_blocks);
  return {.grid = dim3(static_cast<unsigned>(blocks)), .block = dim3(peer_threads), .cooperative = true};
}

/// Calls kernel<op>(), where an average is a sum.
template <class Kernel>
void launch_op(Op op, const Kernel& kernel) {
  if (op == Op::min) return kernel.template operator()<Op::min>();
  if (op == Op::max) return kernel.template operator()<Op::max>();
  if (op == Op::product) return kernel.template operator()<Op::product>();
  kernel.template operator()<Op::sum>();
}

__host__ __device__ inline bool is_pack_aligned(const void* address) {
  return reinterpret_cast<std::uintptr_t>(address) % 16 == 0;
}

/// The length of a rank's block [elements]: whole packs, so the last rank's block may be shorter. Computed on the host,
/// since a GPU has no instruction for integer division.
template <class T>
std::size_t block_length(std::size_t n, unsigned ranks) {
  const std::size_t packs = (n + Pack<T>::count - 1) / Pack<T>::count;
  return Pack<T>::count * ((packs + ranks - 1) / ranks);
}

/// The buffers of a call, which reads `from` and writes `to`.
struct CallBuffers {
  const std::byte* from;
  std::byte* to;
  std::size_t n, rank_block_length;  ///< elements of the buffer, and of a rank's block
  bool from_is_aligned, to_is_aligned;
};

template <class T>
CallBuffers call_buffers(const std::byte* from, std::byte* to, std::size_t n, unsigned ranks) {
  return {from, to, n, block_length<T>(n, ranks), is_pack_aligned(from), is_pack_aligned(to)};
}

/// The packs of a rank's block.
template <class T>
__device__ PackRange<T> block_of(unsigned rank, const CallBuffers& x) {
  const std::size_t begin = rank * x.rank_block_length;
  return {begin < x.n ? begin : x.n, begin + x.rank_block_length < x.n ? begin + x.rank_block_length : x.n};
}

}  // namespace gradmeter::allreduce::cuda
