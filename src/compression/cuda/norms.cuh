// The norm of a bucket by the warps that share it, with the host's bits.
#pragma once
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "compression/cuda/sources.cuh"

namespace gradmeter::compression::cuda {

inline constexpr std::uint32_t infinity_bits = 0x7f800000;

__device__ inline std::uint32_t magnitude_bits(float x) { return __float_as_uint(x) & 0x7fffffff; }

/// detail::max_norm's result from the largest magnitude as an integer: there NaN and infinity are larger than any
/// number.
__device__ inline float norm_of_bits(std::uint32_t most) {
  return most < infinity_bits ? __uint_as_float(most) : std::numeric_limits<float>::quiet_NaN();
}

__device__ inline std::uint32_t largest_bits(const Piece& p) {
  std::uint32_t most = 0;
  for (const Quad& q : p.quads) {
    for (const float v : q.v) most = core::greater(most, magnitude_bits(v));
  }
  return most;
}

/// Sixteen partial sums in lanes 0 … 15, pairwise; the sum is lane 0's.
__device__ inline double pairwise_sum(double partial) {
  for (unsigned half = 8; half > 0; half /= 2) partial += __shfl_down_sync(~0u, partial, half);
  return partial;
}

/// detail::sum_of_squares' sum of one piece, in lane 0. Element i goes to partial sum i mod 16: of 32 elements in a
/// warp, a lane adds its own and then that of the lane 16 above it.
template <class Source>
__device__ double piece_squares(const Source& source, std::size_t bucket, std::size_t first, std::size_t end) {
  double partial = 0;
  for (std::size_t i = first + threadIdx.x % 32; i < first + piece_elements; i += 32) {
    const double v = i < end ? static_cast<double>(source.one(bucket, i)) : 0;
    const double square = v * v, above = __shfl_down_sync(~0u, square, 16);
    partial += square;
    partial += above;
  }
  return pairwise_sum(partial);
}

/// Adds neighbours, then neighbours of these, until sums[0] is all: detail::TreeSum's order. Called by a whole block.
__device__ inline void add_tree(double* sums, std::size_t count) {
  for (std::size_t width = 1; width < count; width *= 2) {
    __syncthreads();
    for (std::size_t j = 2 * width * threadIdx.x; j + width < count; j += 2 * width * blockDim.x)
      sums[j] += sums[j + width];
  }
  __syncthreads();
}

/// detail::l2_of's root.
__device__ inline float root_of(double sum) {
  if (!(sum - sum == 0)) return std::numeric_limits<float>::quiet_NaN();
  const double root = sqrt(sum), most = std::numeric_limits<float>::max();
  return static_cast<float>(core::lesser(root, most));
}

}  // namespace gradmeter::compression::cuda
