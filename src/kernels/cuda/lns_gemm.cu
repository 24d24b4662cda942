#include "kernels/cuda/lns_gemm.hpp"

#include "kernels/cuda/each.cuh"

namespace gradmeter::kernels::cuda {
namespace {

constexpr unsigned tile = 16;

/// G± in shared memory; from the last entry on both are zero.
struct SharedTable {
  const std::int16_t* doubled;
  std::uint32_t entries;
  GRADMETER_HOST_DEVICE std::int32_t operator()(std::uint32_t d, bool opposite) const {
    return doubled[2 * core::lesser(d, entries) + (opposite ? 1 : 0)] / 2;
  }
};

/// An operand as the problem has it: element (row, column) of op(X), zero outside.
struct Operand {
  const Lns16* x;
  std::size_t rows, columns;
  bool transposed;
  __device__ Lns16 at(std::size_t row, std::size_t column) const {
    if (row >= rows || column >= columns) return {};
    return x[transposed ? column * rows + row : row * columns + column];
  }
};

/// A thread to an element of C, 16 by 16 in a block. Zeros behind the last k add nothing.
__global__ void multiply_tiles(Operand a, Operand b, const std::int16_t* doubled, std::uint32_t entries, Lns16* c) {
  GPU_SHARED(std::uint16_t, left, [tile][tile + 1]);
  GPU_SHARED(std::uint16_t, right, [tile][tile + 1]);
  auto* copied = gpu::dynamic_shared<std::int16_t>();
  for (std::uint32_t i = threadIdx.y * tile + threadIdx.x; i < 2 * (entries + 1); i += tile * tile) {
    copied[i] = doubled[i];
  }
  const SharedTable table{copied, entries};
  const std::size_t row = std::size_t{blockIdx.y} * tile + threadIdx.y,
                    column = std::size_t{blockIdx.x} * tile + threadIdx.x;
  Lns16 sum;
  for (std::size_t k = 0; k < a.columns; k += tile) {
    left[threadIdx.y][threadIdx.x] = a.at(row, k + threadIdx.x).bits;
    right[threadIdx.y][threadIdx.x] = b.at(k + threadIdx.y, column).bits;
    __syncthreads();
    for (unsigned j = 0; j < tile; ++j) {
      const Lns16 product = lns_multiply(Lns16{left[threadIdx.y][j]}, Lns16{right[j][threadIdx.x]}, nullptr);
      sum = lns_add(sum, product, table, nullptr);
    }
    __syncthreads();
  }
  if (row < a.rows && column < b.columns) c[row * b.columns + column] = sum;
}

}  // namespace

void lns_gemm(const GemmShape& s, DeviceSpan<const std::int16_t> doubled, DeviceSpan<const Lns16> a,
              DeviceSpan<const Lns16> b, DeviceSpan<Lns16> c, cudaStream_t stream) {
  if (s.bias || s.activation != Activation::none || s.accumulate || s.packed || s.count != 1) {
    throw std::invalid_argument("lns_gemm: C = op(A)·op(B) and nothing more; take the bias or the batch apart");
  }
  check_lengths("lns_gemm: a", a.size(), s.m * s.k);
  check_lengths("lns_gemm: b", b.size(), s.k * s.n);
  check_lengths("lns_gemm: c", c.size(), s.m * s.n);
  if (c.empty()) return;
  const dim3 grid(static_cast<unsigned>((s.n + tile - 1) / tile), static_cast<unsigned>((s.m + tile - 1) / tile));
  runtime::check_cuda(
      gpu::launch(multiply_tiles,
                  {.grid = grid, .block = dim3(tile, tile), .shared_bytes = static_cast<unsigned>(doubled.bytes())},
                  stream, Operand{a.device_address(), s.m, s.k, s.transpose_a == Transpose::yes},
                  Operand{b.device_address(), s.k, s.n, s.transpose_b == Transpose::yes}, doubled.device_address(),
                  static_cast<std::uint32_t>(doubled.size() / 2 - 1), c.device_address()),
      "multiply_tiles");
}

}  // namespace gradmeter::kernels::cuda
