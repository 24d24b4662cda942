// SPDX-License-Identifier: Apache-2.0
// Matrix products by tiles in shared memory. An operand is an object whose at(batch, i, k) loads one element: a dense
// matrix, or the images of a convolution, which therefore need no unfolded copy.
//
// Order of a sum: k is cut into pieces (`pieces_of`). Within a piece, products are added in the order of k by fused
// multiply-adds, beginning with zero; then the sums of the pieces are added in their order. The size of tiles does not
// change this order.
#pragma once
#include <cstddef>
#include <type_traits>

#include "core/host_device.hpp"
#include "kernels/cuda/divisor.cuh"
#include "kernels/cuda/each.cuh"
#include "kernels/gemm/gpu_kernels.hpp"

namespace gradmeter::kernels::cuda {

inline constexpr unsigned slab_depth = 16;  ///< how many values of k lie in shared memory at once

/// A dense operand with elements (i, k), where i is a row of A or a column of B.
template <class T>
struct DenseFactor {
  const T* first;
  std::size_t i_stride, k_stride, batch_stride;  ///< [elements]
  unsigned extent;                               ///< number of rows of A or columns of B

  __device__ float at(unsigned batch, unsigned i, unsigned k) const {
    return load(first + batch * batch_stride + i * i_stride + k * k_stride);
  }
  /// True if elements with consecutive k are adjacent in memory; the threads of a warp then load along k.
  __device__ bool is_contiguous_in_k() const { return k_stride == 1; }
};

/// Loads the elements [k, k + slab_depth) × [first, first + tile) of an operand, with zeros outside its extent and from
/// k = `end` on. Rows in shared memory are 4 floats longer than a tile, so that fewer accesses meet in one bank.
template <unsigned tile, class Factor>
__device__ void load_slab(float (&to)[slab_depth][tile + 4], const Factor& x, unsigned batch, unsigned first,
                          unsigned k, unsigned end) {
  const bool along_k = x.is_contiguous_in_k();
  for (unsigned at = threadIdx.x; at < slab_depth * tile; at += tile * tile / 16) {
    const unsigned depth = along_k ? at % slab_depth : at / tile, i = along_k ? at / slab_depth : at % tile;
    const bool inside = first + i < x.extent && k + depth < end;
    to[depth][i] = inside ? x.at(batch, first + i, k + depth) : 0;
  }
}

/// The 4 × 4 elements of a tile of C that one thread sums. They are tile / 4 rows and columns apart, so that the
/// threads of a warp read and write neighbours.
using ThreadSums = float[4][4];

/// Adds the products of one slab to the thread's sums. The first of the thread's elements is in row y and column x of
/// the tile.
template <unsigned tile>
__device__ void add_slab(const float (&a)[slab_depth][tile + 4], const float (&b)[slab_depth][tile + 4], unsigned x,
                         unsigned y, ThreadSums& sums) {
  for (unsigned depth = 0; depth < slab_depth; ++depth) {
    for (unsigned i = 0; i < 4; ++i) {
      for (unsigned j = 0; j < 4; ++j) {
        sums[i][j] = __fmaf_rn(a[depth][y + i * tile / 4], b[depth][x + j * tile / 4], sums[i][j]);
      }
    }
  }
}

/// Calls put(row, column, sum) for those of the thread's sums that lie inside the matrix; `row` and `column` are the
/// place of the first one.
template <unsigned tile, class Put>
__device__ void put_sums(const ProductExtents& e, unsigned row, unsigned column, const ThreadSums& sums, Put put) {
  for (unsigned i = 0; i < 4; ++i) {
    for (unsigned j = 0; j < 4; ++j) {
      const unsigned at_row = row + i * tile / 4, at_column = column + j * tile / 4;
      if (at_row < e.m && at_column < e.n) put(at_row, at_column, sums[i][j]);
    }
  }
}

/// A block of (tile / 4)² threads computes a tile of C. blockIdx.x is the number of the tile, blockIdx.y that of the
/// piece of k, which is `piece_length` long, and blockIdx.z the first of the batches that the block computes. If there
/// is one piece, result.put(batch, row, column, sum) gets the sums; if there are several, the sums go to `partial`
/// [pieces × batches × m × n].
template <unsigned tile, class Left, class Right, class Result>
__global__ void multiply_tile(Left left, Right right, Result result, ProductExtents e, unsigned piece_length,
                              float* partial) {
  GPU_SHARED(float, a, [slab_depth][tile + 4]);
  GPU_SHARED(float, b, [slab_depth][tile + 4]);
  const unsigned tiles_across = (e.n + tile - 1) / tile, x = threadIdx.x % (tile / 4), y = threadIdx.x / (tile / 4);
  const unsigned row = blockIdx.x / tiles_across * tile, column = blockIdx.x % tiles_across * tile;
  const unsigned begin = blockIdx.y * piece_length, end = core::lesser(begin + piece_length, e.k);
  for (unsigned batch = blockIdx.z; batch < e.batches; batch += gridDim.z) {
    ThreadSums sums = {};
    for (unsigned k = begin; k < end; k += slab_depth) {
      load_slab<tile>(a, left, batch, row, k, end);
      load_slab<tile>(b, right, batch, column, k, end);
      __syncthreads();
      add_slab<tile>(a, b, x, y, sums);
      __syncthreads();
    }
    put_sums<tile>(e, row + y, column + x, sums, [&](unsigned to_row, unsigned to_column, float sum) {
      if (gridDim.y == 1) return result.put(batch, to_row, to_column, sum);
      const std::size_t place = (std::size_t{blockIdx.y} * e.batches + batch) * e.m + to_row;
      partial[place * e.n + to_column] = sum;
    });
  }
}

/// Adds up the sums of all pieces, one thread for each element of C.
template <class IndexDivisor, class Result>
__global__ void add_pieces(Result result, ProductExtents e, IndexDivisor columns, IndexDivisor rows, unsigned pieces,
                           const float* partial) {
  const std::size_t i = element_of_thread(), elements = std::size_t{e.batches} * e.m * e.n;
  if (i >= elements) return;
  float sum = 0;
  for (unsigned piece = 0; piece < pieces; ++piece) sum += partial[piece * elements + i];
  const Quotient in_row = columns.divide(i), row_and_batch = rows.divide(in_row.whole);
  result.put(static_cast<unsigned>(row_and_batch.whole), static_cast<unsigned>(row_and_batch.rest),
             static_cast<unsigned>(in_row.rest), sum);
}

inline unsigned tiles_of(const ProductExtents& e, unsigned tile) {
  return gpu::blocks_of(std::size_t{gpu::blocks_of(e.m, tile)} * gpu::blocks_of(e.n, tile), 1);
}

template <unsigned tile, class Left, class Right, class Result>
void launch_tiles(const Left& left, const Right& right, const Result& result, const ProductExtents& e,
                  const ProductPieces& pieces, float* partial, cudaStream_t stream) {
  constexpr unsigned most_batches = 1024;  // a grid's z extent is at most 65535; 1024 are enough for any GPU
  const dim3 grid(tiles_of(e, tile), pieces.count, core::lesser(e.batches, most_batches));
  runtime::check_cuda(
      gpu::launch(multiply_tile<tile, Left, Right, Result>, {.grid = grid, .block = dim3(tile * tile / 16)}, stream,
                  left, right, result, e, pieces.length, partial),
      "multiply_tile");
}

/// Calls result.put once for each element of left · right. `partial`: product_scratch(e) floats.
template <class Left, class Right, class Result>
void launch_product(const Left& left, const Right& right, const Result& result, const ProductExtents& e,
                    DeviceSpan<float> partial, cudaStream_t stream) {
  const ProductPieces pieces = pieces_of(e);
  check_lengths("product: scratch", partial.size(), product_scratch(e));
  // Big tiles load each operand fewer times; small tiles keep more multiprocessors at work.
  if (std::size_t{tiles_of(e, 64)} * e.batches * pieces.count >= busy_blocks) {
    launch_tiles<64>(left, right, result, e, pieces, partial.device_address(), stream);
  } else {
    launch_tiles<32>(left, right, result, e, pieces, partial.device_address(), stream);
  }
  if (pieces.count == 1) return;
  const std::size_t elements = std::size_t{e.batches} * e.m * e.n;
  with_divisors_below(elements, [&]<class IndexDivisor>(std::type_identity<IndexDivisor>) {
    launch_each(add_pieces<IndexDivisor, Result>, "add_pieces", elements, stream, result, e, IndexDivisor(e.n),
                IndexDivisor(e.m), pieces.count, partial.device_address());
  });
}

}  // namespace gradmeter::kernels::cuda
