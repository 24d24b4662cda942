// SPDX-License-Identifier: Apache-2.0
// Sums over the rows of a matrix in the order of pointwise/row_sums.hpp. A thread block has 16 columns and up to 32
// pieces of 32 rows. Each thread adds up one column of one piece; then the threads of the first piece add up their
// columns' sums over all pieces. So up to 1024 rows take one launch. For more rows, the sums of the blocks are the rows
// of a second launch, and so on.
#pragma once
#include <algorithm>
#include <cstddef>

#include "core/host_device.hpp"
#include "kernels/cuda/each.cuh"
#include "kernels/pointwise/gpu_kernels.hpp"
#include "kernels/pointwise/row_sums.hpp"

namespace gradmeter::kernels::cuda {

inline constexpr unsigned columns_of_block = 16, pieces_of_block = rows_of_piece;

/// The elements of a matrix in memory.
struct MatrixRows {
  const float* first;
  std::size_t columns;
  __device__ float operator()(std::size_t row, std::size_t column) const { return first[row * columns + column]; }
};

/// The kernel passes its sums to one of these: SumsTo stores them, AddedTo adds them to the numbers in memory. The sum
/// of column j over block r of the rows has the index i = r·columns + j.
struct SumsTo {
  float* first;
  __device__ void operator()(std::size_t i, float sum) const { first[i] = sum; }
};
struct AddedTo {
  float* first;
  __device__ void operator()(std::size_t i, float sum) const { first[i] += sum; }
};

template <class Rows, class To>
__global__ void add_rows_by_pieces(Rows matrix, std::size_t rows, std::size_t columns, unsigned column_blocks, To to) {
  GPU_SHARED(float, sums, [pieces_of_block][columns_of_block]);
  const unsigned row_block = blockIdx.x / column_blocks;
  const std::size_t column = std::size_t{blockIdx.x - row_block * column_blocks} * columns_of_block + threadIdx.x;
  const std::size_t first = row_block * rows_of_block + threadIdx.y * rows_of_piece;
  float sum = 0;
  if (column < columns) {
    const std::size_t end = core::lesser(first + rows_of_piece, rows);
    for (std::size_t row = first; row < end; ++row) sum += matrix(row, column);
  }
  sums[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || column >= columns) return;
  float total = 0;
  for (unsigned piece = 0; piece < blockDim.y; ++piece) total += sums[piece][threadIdx.x];
  to(row_block * columns + column, total);
}

template <class Rows, class To>
void launch_rows_by_pieces(const char* what, Rows matrix, std::size_t rows, std::size_t columns, To to,
                           cudaStream_t stream) {
  const auto count = [](std::size_t n, std::size_t each) {
    return static_cast<unsigned>(std::max<std::size_t>((n + each - 1) / each, 1));
  };
  const unsigned column_blocks = count(columns, columns_of_block);
  const unsigned pieces = std::min(count(rows, rows_of_piece), pieces_of_block);
  runtime::check_cuda(
      gpu::launch(add_rows_by_pieces<Rows, To>,
                  {.grid = dim3(column_blocks * count(rows, rows_of_block)), .block = dim3(columns_of_block, pieces)},
                  stream, matrix, rows, columns, column_blocks, to),
      what);
}

/// matrix: a callable (row, column); to: a callable (column, sum). Sums are zero if there are no rows.
template <class Rows, class To>
void launch_column_sums(const char* what, Rows matrix, std::size_t rows, std::size_t columns, To to,
                        DeviceSpan<float> workspace, cudaStream_t stream) {
  check_lengths(what, workspace.size(), column_sums_workspace(rows, columns));
  if (columns == 0) return;
  if (rows <= rows_of_block) return launch_rows_by_pieces(what, matrix, rows, columns, to, stream);
  const std::size_t blocks = (rows + rows_of_block - 1) / rows_of_block;
  float* const sums = workspace.device_address();
  launch_rows_by_pieces(what, matrix, rows, columns, SumsTo{sums}, stream);
  launch_column_sums(what, MatrixRows{sums, columns}, blocks, columns, to, workspace.subspan(blocks * columns), stream);
}

}  // namespace gradmeter::kernels::cuda
