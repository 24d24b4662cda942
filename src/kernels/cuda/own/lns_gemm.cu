#include "kernels/cuda/own/lns_gemm.hpp"

#include "kernels/cuda/each.cuh"
#include "kernels/cuda/lns_sums.cuh"

namespace gradmeter::kernels::cuda {
namespace {

constexpr unsigned tile = 16;

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
  const LnsSums table{copied, entries};
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

/// The table is looked up where it lies: one sum an element.
__global__ void add_bias_each(LnsSums table, const Lns16* bias, std::size_t columns, Lns16* c, std::size_t n) {
  const std::size_t i = element_of_thread();
  if (i < n) c[i] = lns_add(c[i], bias[i % columns], table, nullptr);
}
__global__ void relu_each(Lns16* c, std::size_t n) {
  const std::size_t i = element_of_thread();
  if (i < n && c[i].negative()) c[i] = {};
}

__global__ void encode_each(LnsConversion tables, const float* from, Lns16* to, std::size_t n) {
  const std::size_t i = element_of_thread();
  if (i < n) to[i] = kernels::lns_encode(tables, from[i], nullptr);
}
__global__ void decode_each(LnsConversion tables, const Lns16* from, float* to, std::size_t n) {
  const std::size_t i = element_of_thread();
  if (i < n) to[i] = kernels::lns_decode(tables, from[i]);
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
                  LnsSums::of(doubled).entries, c.device_address()),
      "multiply_tiles");
}

void lns_add_bias(DeviceSpan<const std::int16_t> doubled, DeviceSpan<const Lns16> bias, DeviceSpan<Lns16> c,
                  cudaStream_t stream) {
  check_lengths("lns_add_bias: c", bias.empty() ? c.size() : c.size() % bias.size(), 0);
  launch_each(add_bias_each, "add_bias_each", c.size(), stream, LnsSums::of(doubled), bias.device_address(),
              bias.size(), c.device_address(), c.size());
}
void lns_relu(DeviceSpan<Lns16> c, cudaStream_t stream) {
  launch_each(relu_each, "relu_each", c.size(), stream, c.device_address(), c.size());
}

void lns_encode(const LnsConversion& tables, DeviceSpan<const float> values, DeviceSpan<Lns16> words,
                cudaStream_t stream) {
  check_lengths("lns_encode: words", words.size(), values.size());
  launch_each(encode_each, "encode_each", words.size(), stream, tables, values.device_address(), words.device_address(),
              words.size());
}
void lns_decode(const LnsConversion& tables, DeviceSpan<const Lns16> words, DeviceSpan<float> values,
                cudaStream_t stream) {
  check_lengths("lns_decode: values", values.size(), words.size());
  launch_each(decode_each, "decode_each", values.size(), stream, tables, words.device_address(),
              values.device_address(), values.size());
}

}  // namespace gradmeter::kernels::cuda
