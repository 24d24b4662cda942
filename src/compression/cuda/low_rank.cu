// SPDX-License-Identifier: Apache-2.0
#include "compression/cuda/device_codec.hpp"

#include "compression/cuda/bucketed.cuh"
#include "kernels/cuda/divisor.cuh"
#include "kernels/cuda/each.cuh"

namespace gradmeter::compression::cuda {

using kernels::cuda::check_lengths, kernels::cuda::element_of_thread, kernels::cuda::element_of_warp,
    kernels::cuda::launch_each, kernels::cuda::warp_for_each;

namespace {

constexpr unsigned half_warp = 16;  // lanes that share a dot product: as many as the host has partial sums

__device__ std::size_t row_length(const MatrixShape& m, std::size_t i) {
  return core::lesser(m.columns, m.count - i * m.columns);
}

/// A warp multiplies a row; each half of it takes two columns of Q at a time.
__global__ void multiply_rows(MatrixShape m, std::size_t rank, const float* x, const float* q, float* p) {
  const std::size_t row = element_of_warp();
  if (row >= m.rows) return;
  const unsigned lane = threadIdx.x % half_warp;
  const std::size_t n = row_length(m, row);
  for (std::size_t j = threadIdx.x % 32 / half_warp * 2; j - j % 4 < rank; j += 4) {
    float a = 0, b = 0;
    for (std::size_t c = lane; c < n; c += half_warp) {
      const float v = x[row * m.columns + c];
      if (j < rank) a += v * q[j * m.columns + c];
      if (j + 1 < rank) b += v * q[(j + 1) * m.columns + c];
    }
    for (unsigned by = half_warp / 2; by > 0; by /= 2) {
      a += __shfl_down_sync(~0u, a, by, half_warp);
      b += __shfl_down_sync(~0u, b, by, half_warp);
    }
    if (lane != 0) continue;
    if (j < rank) p[row * rank + j] = a;
    if (j + 1 < rank) p[row * rank + j + 1] = b;
  }
}

/// A thread multiplies a column of M with four of P at a time. The first `longer_columns` columns have one row more
/// than `full_rows`, since the last row of M may be short.
__global__ void multiply_columns(MatrixShape m, std::size_t full_rows, std::size_t longer_columns, std::size_t rank,
                                 const float* x, const float* p, float* q) {
  const std::size_t c = element_of_thread();
  if (c >= m.columns) return;
  const std::size_t rows = full_rows + (c < longer_columns ? 1 : 0);
  for (std::size_t first = 4 * std::size_t{blockIdx.y}; first < rank; first += 4 * std::size_t{gridDim.y}) {
    float sums[4] = {};
    for (std::size_t r = 0; r < rows; ++r) {
      const float v = x[r * m.columns + c];
      for (std::size_t j = 0; j < 4; ++j) {
        if (first + j < rank) sums[j] += p[r * rank + first + j] * v;
      }
    }
    for (std::size_t j = 0; j < 4 && first + j < rank; ++j) q[(first + j) * m.columns + c] = sums[j];
  }
}

template <class DivisorType>
__global__ void add_products(MatrixShape m, DivisorType columns, std::size_t rank, const float* p, const float* q,
                             float* out) {
  const std::size_t i = element_of_thread();
  if (i >= m.count) return;
  const auto [row, c] = columns.divide(i);
  float sum = p[row * rank] * q[c];
  for (std::size_t j = 1; j < rank; ++j) sum += p[row * rank + j] * q[j * m.columns + c];
  out[i] = sum;
}

/// The product of two columns by the whole block, in the order of detail::sum_by_pieces. `sums` [pieces].
__device__ double dot_product(const Column& a, const Column& b, double* sums) {
  const unsigned lane = threadIdx.x % 32;
  __syncthreads();  // all threads have written their part of the columns, and read the last sum
  const std::size_t pieces = (a.rows + piece_elements - 1) / piece_elements;
  for (std::size_t piece = threadIdx.x / 32; piece < pieces; piece += blockDim.x / 32) {
    double partial = 0;
    for (std::size_t k = 0; k < piece_elements; k += 32) {
      const std::size_t i = piece * piece_elements + k + lane;
      const double mine = i < a.rows ? static_cast<double>(a[i]) * static_cast<double>(b[i]) : 0;
      const double above = __shfl_down_sync(~0u, mine, 16);
      partial += mine;
      partial += above;
    }
    partial = pairwise_sum(partial);
    if (lane == 0) sums[piece] = partial;
  }
  add_tree(sums, pieces);
  return sums[0];
}

__device__ void subtract_share(const Column& a, double share, const Column& b) {
  for (std::size_t i = threadIdx.x; i < a.rows; i += blockDim.x) {
    a[i] = static_cast<float>(static_cast<double>(a[i]) - share * static_cast<double>(b[i]));
  }
}

/// Gram-Schmidt, twice over, by one block; dynamic shared memory: a double for each 512 rows.
__global__ void orthonormal_columns(float* p, std::size_t rows, std::size_t rank) {
  auto* sums = gpu::dynamic_shared<double>();
  for (std::size_t j = 0; j < rank; ++j) {
    const Column column{p + j, rows, rank};
    const double before = sqrt(dot_product(column, column, sums));
    for (int pass = 0; pass < 2; ++pass) {
      for (std::size_t e = 0; e < j; ++e) {
        const Column earlier{p + e, rows, rank};
        subtract_share(column, dot_product(column, earlier, sums), earlier);
      }
    }
    const double factor = column_factor(before, sqrt(dot_product(column, column, sums)));
    for (std::size_t i = threadIdx.x; i < rows; i += blockDim.x) {
      column[i] = static_cast<float>(static_cast<double>(column[i]) * factor);
    }
  }
}

void check_shape(const MatrixShape& m, std::size_t rank, std::size_t count, std::size_t q, std::size_t p) {
  check_lengths("powersgd: the matrix", count, m.count);
  check_lengths("powersgd: Q", q, m.q_size(rank));
  check_lengths("powersgd: P", p, m.p_size(rank));
}

}  // namespace

void multiply(const MatrixShape& m, std::size_t rank, DeviceSpan<const float> x, DeviceSpan<const float> q,
              DeviceSpan<float> p, cudaStream_t stream) {
  check_shape(m, rank, x.size(), q.size(), p.size());
  if (m.count == 0) return;
  runtime::check_cuda(gpu::launch(multiply_rows, warp_for_each(m.rows), stream, m, rank, x.device_address(),
                                  q.device_address(), p.device_address()),
                      "multiply_rows");
}

void multiply_transposed(const MatrixShape& m, std::size_t rank, DeviceSpan<const float> x, DeviceSpan<const float> p,
                         DeviceSpan<float> q, cudaStream_t stream) {
  check_shape(m, rank, x.size(), q.size(), p.size());
  if (m.count == 0) return;
  constexpr unsigned threads = 128;
  const dim3 grid(gpu::blocks_of(m.columns, threads),
                  core::lesser(gpu::blocks_of(rank, 4), gpu::most_blocks_in_y_or_z));
  runtime::check_cuda(
      gpu::launch(multiply_columns, {.grid = grid, .block = dim3(threads)}, stream, m, m.count / m.columns,
                  m.count % m.columns, rank, x.device_address(), p.device_address(), q.device_address()),
      "multiply_columns");
}

void reconstruct(const MatrixShape& m, std::size_t rank, DeviceSpan<const float> p, DeviceSpan<const float> q,
                 DeviceSpan<float> out, cudaStream_t stream) {
  check_shape(m, rank, out.size(), q.size(), p.size());
  kernels::cuda::with_divisors_below(m.count, [&]<class DivisorType>(std::type_identity<DivisorType>) {
    launch_each(add_products<DivisorType>, "add_products", m.count, stream, m, DivisorType(m.columns), rank,
                p.device_address(), q.device_address(), out.device_address());
  });
}

void orthonormalise(const MatrixShape& m, std::size_t rank, DeviceSpan<float> p, cudaStream_t stream) {
  check_lengths("powersgd: P", p.size(), m.p_size(rank));
  if (p.empty()) return;
  constexpr std::size_t most_shared = 48 * 1024;  // the shared memory of a block that has not asked for more [bytes]
  const std::size_t shared = (m.rows + piece_elements - 1) / piece_elements * sizeof(double);
  if (shared > most_shared) {
    throw std::invalid_argument("powersgd: columns of " + std::to_string(m.rows) +
                                " rows are too long for one block's sums: send the matrix dense, or transposed");
  }
  runtime::check_cuda(gpu::launch(orthonormal_columns,
                                  {.grid = dim3(1), .block = dim3(512), .shared_bytes = static_cast<unsigned>(shared)},
                                  stream, p.device_address(), m.rows, rank),
                      "orthonormal_columns");
}

}  // namespace gradmeter::compression::cuda
