// What the kernels of `topk` leave for each other in the workspace, and the order of chunks.
#pragma once
#include <cstddef>
#include <cstdint>

#include "compression/cuda/norms.cuh"
#include "compression/cuda/topk.hpp"
#include "runtime/cuda/handles.hpp"

namespace gradmeter::compression::cuda {

using Count = unsigned long long;  // what atomicAdd takes: 2^32 elements are possible

/// A block's part of a tensor: a warp has 512 neighbours, a lane every 32nd of these.
inline constexpr std::size_t chunk_elements = 4096;
inline constexpr unsigned chunk_threads = 256, chunk_warps = chunk_threads / 32;
inline constexpr unsigned chunk_rounds = chunk_elements / chunk_threads;

inline constexpr unsigned upper_bins = 2048, lower_bins = 1024;
inline constexpr int upper_shift = 20, lower_shift = 10;

/// Taken: magnitudes above `bits`, and the first `ties` of those equal to it (detail::Threshold).
struct Chosen {
  Count ties;
  std::uint32_t bits, finite;
};

/// Two slots and two counts.
inline constexpr std::size_t chunk_bytes = 2 * sizeof(Count) + 2 * sizeof(std::uint32_t);

struct TopKState {
  TopKState(std::byte* workspace, std::size_t n)
      : chunks((n + chunk_elements - 1) / chunk_elements),
        upper(reinterpret_cast<Count*>(workspace)),
        coarse(upper + upper_bins),
        fine(coarse + lower_bins),
        first(fine + std::size_t{lower_bins} * lower_bins),
        ties_before(first + chunks),
        above(reinterpret_cast<std::uint32_t*>(ties_before + chunks)),
        ties(above + chunks),
        chosen(reinterpret_cast<Chosen*>(ties + chunks)),
        damaged(reinterpret_cast<std::uint32_t*>(chosen + 1)) {}
  std::size_t histogram_bytes() const { return static_cast<std::size_t>(first - upper) * sizeof(Count); }

  std::size_t chunks;
  Count *upper, *coarse, *fine;  ///< histograms
  Count *first, *ties_before;    ///< of a chunk: the slot of its first taken element; ties in those before it
  std::uint32_t *above, *ties;   ///< of a chunk: elements above the threshold, and equal to it
  Chosen* chosen;
  std::uint32_t* damaged;
};

/// Sum of `mine` over the threads before this one, and of all: for a block of whole warps. `shared` [33].
__device__ inline Count sum_before(Count mine, Count* shared, Count& all) {
  const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  Count with_mine = mine;
  for (unsigned by = 1; by < 32; by *= 2) {
    const Count below = __shfl_up_sync(~0u, with_mine, by);
    if (lane >= by) with_mine += below;
  }
  __syncthreads();  // the last call's numbers have been read
  if (lane == 31) shared[warp] = with_mine;
  __syncthreads();
  Count before = with_mine - mine;
  all = 0;
  for (unsigned w = 0; w < blockDim.x / 32; ++w) {
    if (w < warp) before += shared[w];
    all += shared[w];
  }
  return before;
}

/// One block: where each chunk's elements begin. `wanted`: how many ties are taken in all. Leaves in `total` how many
/// elements are taken.
__device__ inline void order_chunks(const TopKState& state, Count wanted, Count& total) {
  GPU_SHARED(Count, sums, [33]);
  Count ties_so_far = 0, taken_so_far = 0;
  for (std::size_t from = 0; from < state.chunks; from += blockDim.x) {
    const std::size_t c = from + threadIdx.x;
    const Count ties = c < state.chunks ? state.ties[c] : 0, above = c < state.chunks ? state.above[c] : 0;
    Count all_ties = 0, all_taken = 0;
    const Count ties_before = ties_so_far + sum_before(ties, sums, all_ties);
    const Count left = wanted > ties_before ? wanted - ties_before : 0;
    const Count before = taken_so_far + sum_before(above + core::lesser(ties, left), sums, all_taken);
    if (c < state.chunks) {
      state.ties_before[c] = ties_before;
      state.first[c] = before;
    }
    ties_so_far += all_ties;
    taken_so_far += all_taken;
  }
  total = taken_so_far;
}

/// The block's sums of two numbers, in thread 0.
__device__ inline void sum_of_block(unsigned& a, unsigned& b) {
  GPU_SHARED(unsigned, sums, [2 * chunk_warps]);
  const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  a = __reduce_add_sync(~0u, a);
  b = __reduce_add_sync(~0u, b);
  if (lane == 0) {
    sums[warp] = a;
    sums[chunk_warps + warp] = b;
  }
  __syncthreads();
  a = __reduce_add_sync(~0u, lane < chunk_warps ? sums[lane] : 0u);
  b = __reduce_add_sync(~0u, lane < chunk_warps ? sums[chunk_warps + lane] : 0u);
}

/// This thread's element in round r of its chunk.
__device__ inline std::size_t chunk_place(unsigned r) {
  return std::size_t{blockIdx.x} * chunk_elements + threadIdx.x / 32 * (32 * chunk_rounds) + 32 * r + threadIdx.x % 32;
}

inline gpu::Shape chunk_shape(std::size_t chunks) {
  return {.grid = dim3(static_cast<unsigned>(chunks)), .block = dim3(chunk_threads)};
}
inline constexpr unsigned one_block_threads = 512;

}  // namespace gradmeter::compression::cuda
