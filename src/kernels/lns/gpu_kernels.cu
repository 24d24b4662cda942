// SPDX-License-Identifier: Apache-2.0
// Kernels on logarithmic numbers: products, updates of weights and the loss, all of which look sums up in a table.
#include "kernels/lns/gpu_kernels.hpp"

#include <cstdint>

#include "core/host_device.hpp"
#include "kernels/cuda/divisor.cuh"
#include "kernels/cuda/each.cuh"
#include "kernels/lns/lns.hpp"
#include "runtime/device_memory.hpp"

namespace gradmeter::kernels::cuda {

/// Looks up G± in a table (LnsTables::doubled): 2·G+(d) at 2d, 2·G−(d) at 2d + 1. Both are zero from d = `entries` on.
struct LnsSumTable {
  const std::int16_t* doubled;
  std::uint32_t entries;

  static LnsSumTable of(runtime::DeviceSpan<const std::int16_t> doubled) {
    return {doubled.device_address(), static_cast<std::uint32_t>(doubled.size() / 2 - 1)};
  }
  GRADMETER_HOST_DEVICE std::int32_t operator()(std::uint32_t d, bool opposite) const {
    return doubled[2 * core::lesser(d, entries) + (opposite ? 1 : 0)] / 2;
  }
};

namespace {

constexpr unsigned tile = 16;  // rows and columns of C that a thread block computes

/// An operand op(X) of a product; elements outside of it are zero.
struct ProductOperand {
  const Lns16* x;
  std::size_t rows, columns;
  bool transposed;
  __device__ Lns16 at(std::size_t row, std::size_t column) const {
    if (row >= rows || column >= columns) return {};
    return x[transposed ? column * rows + row : row * columns + column];
  }
};

/// A thread computes an element of C, and a block a tile of 16 by 16. blockIdx.x counts all tiles, since blockIdx.y
/// could not count those of a tall matrix. Zeros after the last k add nothing.
__global__ void multiply_tiles(ProductOperand a, ProductOperand b, const std::int16_t* doubled, std::uint32_t entries,
                               Lns16* c) {
  GPU_SHARED(std::uint16_t, left, [tile][tile + 1]);
  GPU_SHARED(std::uint16_t, right, [tile][tile + 1]);
  auto* shared_table = gpu::dynamic_shared<std::int16_t>();
  for (std::uint32_t i = threadIdx.y * tile + threadIdx.x; i < 2 * (entries + 1); i += tile * tile) {
    shared_table[i] = doubled[i];
  }
  const LnsSumTable sums{shared_table, entries};
  const auto tiles_across = static_cast<unsigned>((b.columns + tile - 1) / tile);
  const std::size_t row = std::size_t{blockIdx.x / tiles_across} * tile + threadIdx.y,
                    column = std::size_t{blockIdx.x % tiles_across} * tile + threadIdx.x;
  Lns16 sum;
  for (std::size_t k = 0; k < a.columns; k += tile) {
    left[threadIdx.y][threadIdx.x] = a.at(row, k + threadIdx.x).bits;
    right[threadIdx.y][threadIdx.x] = b.at(k + threadIdx.y, column).bits;
    __syncthreads();
    for (unsigned j = 0; j < tile; ++j) {
      const Lns16 product = lns_multiply(Lns16{left[threadIdx.y][j]}, Lns16{right[j][threadIdx.x]}, nullptr);
      sum = lns_add(sum, product, sums, nullptr);
    }
    __syncthreads();
  }
  if (row < a.rows && column < b.columns) c[row * b.columns + column] = sum;
}

/// Looks up sums in global memory, since there is only one for each element.
template <class IndexDivisor>
__global__ void add_bias_each(LnsSumTable table, const Lns16* bias, IndexDivisor columns, Lns16* c, std::size_t n) {
  const std::size_t i = element_of_thread();
  if (i < n) c[i] = lns_add(c[i], bias[columns.divide(i).rest], table, nullptr);
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
  const dim3 grid(gpu::blocks_of(std::size_t{gpu::blocks_of(s.m, tile)} * gpu::blocks_of(s.n, tile), 1));
  runtime::check_cuda(
      gpu::launch(multiply_tiles,
                  {.grid = grid, .block = dim3(tile, tile), .shared_bytes = static_cast<unsigned>(doubled.bytes())},
                  stream, ProductOperand{a.device_address(), s.m, s.k, s.transpose_a == Transpose::yes},
                  ProductOperand{b.device_address(), s.k, s.n, s.transpose_b == Transpose::yes},
                  doubled.device_address(), LnsSumTable::of(doubled).entries, c.device_address()),
      "multiply_tiles");
}

void lns_add_bias(DeviceSpan<const std::int16_t> doubled, DeviceSpan<const Lns16> bias, DeviceSpan<Lns16> c,
                  cudaStream_t stream) {
  check_lengths("lns_add_bias: c", bias.empty() ? c.size() : c.size() % bias.size(), 0);
  with_divisors_below(c.size(), [&]<class IndexDivisor>(std::type_identity<IndexDivisor>) {
    launch_each(add_bias_each<IndexDivisor>, "add_bias_each", c.size(), stream, LnsSumTable::of(doubled),
                bias.device_address(), IndexDivisor(bias.size()), c.device_address(), c.size());
  });
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

namespace {

/// The tables for one number of fraction bits, as an argument of kernels.
struct LnsKernelTables {
  LnsConversion conversion;
  LnsSumTable sums;
  const std::uint16_t* exponentials;

  explicit LnsKernelTables(const DeviceLnsTables& t)
      : conversion(t.conversion), sums(LnsSumTable::of(t.doubled_sums)), exponentials(t.exponential.device_address()) {}
  __device__ Lns16 encode(float x) const { return kernels::lns_encode(conversion, x, nullptr); }
  __device__ float decode(Lns16 x) const { return kernels::lns_decode(conversion, x); }
  __device__ Lns16 add(Lns16 x, Lns16 y) const { return kernels::lns_add(x, y, sums, nullptr); }
  /// exp x for x ≤ 0.
  __device__ Lns16 exponential(Lns16 x) const { return {exponentials[x.code()]}; }
};

__global__ void lns_round_each(LnsKernelTables s, float* w, std::size_t n) {
  const std::size_t i = element_of_thread();
  if (i < n) w[i] = s.decode(s.encode(w[i]));
}

__global__ void lns_update_each(LnsKernelTables s, float* w, const float* target, float* carry, UpdateGate gate,
                                std::size_t n) {
  const std::size_t i = element_of_thread();
  if (i >= n || gate.is_skipped()) return;
  lns_change(s.conversion, s.sums, w[i], carry ? carry + i : nullptr, s.encode(target[i] - w[i]));
}

__global__ void lns_descend_each(LnsKernelTables s, float* w, const float* g, Lns16 factor, float* carry,
                                 UpdateGate gate, std::size_t n) {
  const std::size_t i = element_of_thread();
  if (i >= n || gate.is_skipped()) return;
  const Lns16 change = lns_multiply(s.encode(g[i]), factor, nullptr);
  lns_change(s.conversion, s.sums, w[i], carry ? carry + i : nullptr, change);
}

/// The results of each row, in the workspace.
struct LnsRows {
  double* loss;
  std::uint64_t* correct;  ///< 1 if the row's largest logit is the label's, else 0
  Lns16* probabilities;    ///< [rows × classes]
};

/// The index of the first of the largest logits; a NaN counts as no larger than another number.
__device__ std::size_t place_of_largest(const float* logits, std::size_t classes) {
  std::size_t top = 0;
  for (std::size_t j = 1; j < classes; ++j)
    if (logits[top] < logits[j]) top = j;
  return top;
}

/// Writes a row's probabilities to p; `top` is the index of its largest logit.
__device__ void softmax(const LnsKernelTables& s, const float* logits, std::size_t top, std::size_t classes, Lns16* p) {
  const Lns16 largest = s.encode(logits[top]);
  Lns16 sum;
  for (std::size_t j = 0; j < classes; ++j) {
    p[j] = s.exponential(s.add(s.encode(logits[j]), -largest));
    sum = s.add(sum, p[j]);
  }
  for (std::size_t j = 0; j < classes; ++j) p[j] = lns_divide(p[j], sum, nullptr);
}

/// Computes the loss and the gradient of a row in each thread, since each sum depends on the one before.
__global__ void lns_each_row(LnsKernelTables s, const float* logits, const std::int32_t* labels, std::size_t rows,
                             std::size_t classes, const float* loss_scale, float* gradient, LnsRows out) {
  const std::size_t row = element_of_thread();
  if (row >= rows) return;
  const float* in = logits + row * classes;
  Lns16* p = out.probabilities + row * classes;
  const auto label = static_cast<std::size_t>(labels[row]);
  const std::size_t top = place_of_largest(in, classes);
  softmax(s, in, top, classes, p);
  out.loss[row] = label < classes ? lns_negative_log(s.conversion.fraction_bits, p[label]) : core::quiet_nan<double>();
  out.correct[row] = top == label ? 1 : 0;
  if (!gradient) return;
  const Lns16 factor = s.encode((loss_scale ? *loss_scale : 1.0f) / static_cast<float>(rows));
  if (label < classes) p[label] = s.add(p[label], -Lns16::from(false, Lns16::one));
  for (std::size_t j = 0; j < classes; ++j) gradient[row * classes + j] = s.decode(lns_multiply(p[j], factor, nullptr));
}

/// Adds up the rows' results in one thread, in the order of the rows.
__global__ void lns_add_rows_up(LnsRows rows, std::size_t count, CrossEntropy* total) {
  CrossEntropy sum{0, 0};
  for (std::size_t r = 0; r < count; ++r) {
    sum.loss_sum += rows.loss[r];
    sum.correct += static_cast<std::size_t>(rows.correct[r]);
  }
  *total = sum;
}

void check_change(const char* what, DeviceSpan<float> w, DeviceSpan<const float> other, DeviceSpan<float> carry) {
  check_lengths(what, other.size(), w.size());
  if (!carry.empty()) check_lengths(what, carry.size(), w.size());
}

}  // namespace

void lns_round(const DeviceLnsTables& t, DeviceSpan<float> w, cudaStream_t stream) {
  launch_each(lns_round_each, "lns_round_each", w.size(), stream, LnsKernelTables(t), w.device_address(), w.size());
}

void lns_update(const DeviceLnsTables& t, DeviceSpan<float> w, DeviceSpan<const float> target, DeviceSpan<float> carry,
                UpdateGate gate, cudaStream_t stream) {
  check_change("lns_update: target or carry", w, target, carry);
  launch_each(lns_update_each, "lns_update_each", w.size(), stream, LnsKernelTables(t), w.device_address(),
              target.device_address(), carry.device_address(), gate, w.size());
}

void lns_descend(const DeviceLnsTables& t, DeviceSpan<float> w, DeviceSpan<const float> g, float step,
                 DeviceSpan<float> carry, UpdateGate gate, cudaStream_t stream) {
  check_change("lns_descend: g or carry", w, g, carry);
  const Lns16 factor = Lns(t.conversion.fraction_bits).encode(-double{step});
  launch_each(lns_descend_each, "lns_descend_each", w.size(), stream, LnsKernelTables(t), w.device_address(),
              g.device_address(), factor, carry.device_address(), gate, w.size());
}

std::size_t lns_cross_entropy_workspace(std::size_t rows, std::size_t classes) {
  return rows * (sizeof(double) + sizeof(std::uint64_t) + classes * sizeof(Lns16));
}

void lns_softmax_cross_entropy(const DeviceLnsTables& t, DeviceSpan<const float> logits,
                               DeviceSpan<const std::int32_t> labels, std::size_t classes,
                               DeviceSpan<const float> loss_scale, DeviceSpan<float> gradient,
                               DeviceSpan<CrossEntropy> total, DeviceSpan<std::byte> workspace, cudaStream_t stream) {
  const std::size_t rows = labels.size();
  check_lengths("lns_softmax_cross_entropy: logits", logits.size(), rows * classes);
  if (!gradient.empty()) check_lengths("lns_softmax_cross_entropy: gradient", gradient.size(), logits.size());
  if (!loss_scale.empty()) check_lengths("lns_softmax_cross_entropy: loss_scale", loss_scale.size(), 1);
  check_lengths("lns_softmax_cross_entropy: total", total.size(), 1);
  check_lengths("lns_softmax_cross_entropy: workspace", workspace.size(), lns_cross_entropy_workspace(rows, classes));
  auto* loss = reinterpret_cast<double*>(workspace.device_address());
  auto* correct = reinterpret_cast<std::uint64_t*>(loss + rows);
  const LnsRows out{loss, correct, reinterpret_cast<Lns16*>(correct + rows)};
  launch_each(lns_each_row, "lns_each_row", rows, stream, LnsKernelTables(t), logits.device_address(),
              labels.device_address(), rows, classes, loss_scale.device_address(), gradient.device_address(), out);
  runtime::check_cuda(
      gpu::launch(lns_add_rows_up, {.grid = dim3(1), .block = dim3(1)}, stream, out, rows, total.device_address()),
      "lns_add_rows_up");
}

}  // namespace gradmeter::kernels::cuda
