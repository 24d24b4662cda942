// SPDX-License-Identifier: Apache-2.0
#include "kernels/gemm/gpu_kernels.hpp"

#include <cmath>
#include <stdexcept>

#include "core/element.hpp"
#include "core/host_device.hpp"
#include "kernels/cuda/divisor.cuh"
#include "kernels/cuda/each.cuh"
#include "kernels/gemm/product.cuh"

namespace gradmeter::kernels::cuda {
namespace {

template <class T>
struct DenseResult {
  T* first;
  std::size_t row_stride, batch_stride;
  const float* bias;
  bool accumulate, is_relu;

  __device__ void put(unsigned batch, unsigned row, unsigned column, float value) const {
    T* const to = first + batch * batch_stride + row * row_stride + column;
    if (accumulate) value += load(to);
    if (bias != nullptr) value += bias[column];
    store(is_relu && value < 0 ? 0.0f : value, to);
  }
};

template <class T>
void check(const GemmShape& s, const GemmOperands<T>& o) {
  if (s.packed) throw std::invalid_argument("gemm: there is no layout of its own; leave packed out");
  check_lengths("gemm: a", o.a.size(), s.count * s.m * s.k);
  check_lengths("gemm: b", o.b.size(), s.count * s.k * s.n);
  check_lengths("gemm: bias", o.bias.size(), s.bias ? s.n : 0);
  check_lengths("gemm: c", o.c.size(), s.count * s.m * s.n);
}

template <class T>
void launch_gemm(const GemmShape& s, const GemmOperands<T>& o, cudaStream_t stream) {
  check(s, o);
  if (o.c.empty()) return;
  const bool ta = s.transpose_a == Transpose::yes, tb = s.transpose_b == Transpose::yes;
  const ProductExtents e = extents_of(s);
  const DenseFactor<T> left{o.a.device_address(), ta ? 1 : s.k, ta ? s.m : 1, s.m * s.k, e.m};
  const DenseFactor<T> right{o.b.device_address(), tb ? s.k : 1, tb ? 1 : s.n, s.k * s.n, e.n};
  const DenseResult<T> result{o.c.device_address(),
                              s.n,
                              s.m * s.n,
                              s.bias ? o.bias.device_address() : nullptr,
                              s.accumulate,
                              s.activation == Activation::relu};
  launch_product(left, right, result, e, o.scratch, stream);
}

}  // namespace

ProductExtents extents_of(const GemmShape& s) {
  return {static_cast<unsigned>(s.m), static_cast<unsigned>(s.n), static_cast<unsigned>(s.k),
          static_cast<unsigned>(s.count)};
}

void gemm(const GemmShape& s, const GemmOperands<float>& o, cudaStream_t stream) { launch_gemm(s, o, stream); }
void gemm(const GemmShape& s, const GemmOperands<Bf16>& o, cudaStream_t stream) { launch_gemm(s, o, stream); }
void gemm(const GemmShape& s, const GemmOperands<Fp16>& o, cudaStream_t stream) { launch_gemm(s, o, stream); }

void multiply(const MatrixProduct& p, DeviceSpan<float> scratch, cudaStream_t stream) {
  if (p.m == 0 || p.k == 0) return;
  const DenseFactor<float> left{p.a.first, p.a.row_stride, p.a.column_stride, 0, p.m};
  const DenseFactor<float> right{p.b.first, p.b.column_stride, p.b.row_stride, 0, p.n};
  const DenseResult<float> result{p.c.first, p.c.row_stride, 0, p.bias, p.accumulate, false};
  launch_product(left, right, result, {p.m, p.n, p.k, 1}, scratch, stream);
}

namespace {

constexpr std::uint32_t infinity_bits = 0x7f800000;

/// Where an element of the stored form lies in the plain form: its index there, and its row and column in the matrix.
/// `inside` is false for padding.
struct PlainPlace {
  std::size_t index, row, column;
  bool inside;
};
template <class IndexDivisor>
struct StoredExtents {
  IndexDivisor rows, columns;
};
template <class IndexDivisor>
__device__ PlainPlace plain_place(std::size_t stored, const MatrixForm& f, const StoredExtents<IndexDivisor>& extents) {
  const Quotient in_row = extents.columns.divide(stored), in_matrix = extents.rows.divide(in_row.whole);
  const std::size_t column = in_row.rest, row = in_matrix.rest, first = in_matrix.whole * f.rows * f.columns;
  const bool inside = row < f.rows && column < f.columns;
  return {first + (f.transposed ? column * f.rows + row : row * f.columns + column), row, column, inside};
}

template <core::SmallFormat format>
struct ToHalf {
  __device__ std::uint16_t operator()(float v, std::size_t) const { return core::rounded_code<format>(v); }
};
template <core::SmallFormat format>
struct ToFp8 {
  const Fp8Scale* scale;
  __device__ std::uint8_t operator()(float v, std::size_t) const {
    const bool finite = (__float_as_uint(v) & 0x7fffffff) < infinity_bits;
    const float scaled = finite ? __fdiv_rn(v, scale->factor) : v;
    return static_cast<std::uint8_t>(
        core::rounded_code<format>(scaled, finite ? core::Overflow::saturate : core::Overflow::honest));
  }
};
struct ToInt8 {
  Int8Quantum q;
  __device__ std::int8_t operator()(float v, std::size_t row) const {
    const float quantum = q.row_quanta ? q.row_quanta[row] : q.quantum;
    const float level = rintf(__fdiv_rn(v, quantum)) + q.zero_point;
    return static_cast<std::int8_t>(core::lesser(core::greater(level, -128.0F), 127.0F));
  }
};
struct Same {
  template <class T>
  __device__ T operator()(T v, std::size_t) const {
    return v;
  }
};
struct FromSum {
  float quantum;
  const float* column_quanta;
  __device__ float operator()(std::int32_t v, std::size_t column) const {
    return static_cast<float>(v) * (column_quanta ? quantum * column_quanta[column] : quantum);
  }
};

/// Converts one stored element in each thread.
template <class IndexDivisor, class From, class To, class Convert>
__global__ void pack_elements(const From* plain, To* stored, Convert convert, MatrixForm f,
                              StoredExtents<IndexDivisor> extents) {
  const std::size_t i = element_of_thread();
  if (i >= f.stored_elements()) return;
  const PlainPlace p = plain_place(i, f, extents);
  stored[i] = p.inside ? convert(plain[p.index], p.row) : To{};
}
template <class IndexDivisor, class From, class To, class Convert>
__global__ void unpack_elements(const From* stored, To* plain, Convert convert, MatrixForm f,
                                StoredExtents<IndexDivisor> extents) {
  const std::size_t i = element_of_thread();
  if (i >= f.stored_elements()) return;
  const PlainPlace p = plain_place(i, f, extents);
  if (p.inside) plain[p.index] = convert(stored[i], p.column);
}

/// Finds the largest finite magnitude. Magnitudes are compared by their bits, which are in the same order.
__global__ void find_largest(const float* x, std::size_t n, Fp8Scale* scale) {
  std::uint32_t largest = 0;
  const std::size_t stride = std::size_t{gridDim.x} * blockDim.x;
  for (std::size_t i = element_of_thread(); i < n; i += stride) {
    const std::uint32_t bits = __float_as_uint(x[i]) & 0x7fffffff;
    if (bits < infinity_bits) largest = core::greater(largest, bits);
  }
  for (unsigned lane_mask = 16; lane_mask > 0; lane_mask /= 2)
    largest = core::greater(largest, __shfl_xor_sync(~0u, largest, static_cast<int>(lane_mask)));
  if (threadIdx.x % 32 == 0) atomicMax(&scale->largest_bits, largest);
}
__global__ void finish_scale(Fp8Scale* scale, float largest_of_format) {
  const float largest = __uint_as_float(scale->largest_bits);
  const float factor = __fdiv_rn(largest > 0 ? largest : 1.0F, largest_of_format);
  scale->factor = factor > 0 ? factor : 1.0F;  // tiny numbers, whose factor underflows, become zeros
}

template <class From, class To, class Convert>
void launch_pack(const From* plain, To* stored, Convert convert, const MatrixForm& f, cudaStream_t stream) {
  with_divisors_below(f.stored_elements(), [&]<class IndexDivisor>(std::type_identity<IndexDivisor>) {
    launch_each(pack_elements<IndexDivisor, From, To, Convert>, "pack_elements", f.stored_elements(), stream, plain,
                stored, convert, f,
                StoredExtents<IndexDivisor>{IndexDivisor(f.stored_rows), IndexDivisor(f.stored_columns)});
  });
}
template <class From, class To, class Convert>
void launch_unpack(const From* stored, To* plain, Convert convert, const MatrixForm& f, cudaStream_t stream) {
  with_divisors_below(f.stored_elements(), [&]<class IndexDivisor>(std::type_identity<IndexDivisor>) {
    launch_each(unpack_elements<IndexDivisor, From, To, Convert>, "unpack_elements", f.stored_elements(), stream,
                stored, plain, convert, f,
                StoredExtents<IndexDivisor>{IndexDivisor(f.stored_rows), IndexDivisor(f.stored_columns)});
  });
}

[[noreturn]] void refuse_element() { throw std::logic_error("matrices are not packed into this type of element"); }

}  // namespace

void pack_halves(const float* plain, std::uint16_t* stored, core::Element element, const MatrixForm& f,
                 cudaStream_t stream) {
  if (element == core::Element::f16) return launch_pack(plain, stored, ToHalf<core::fp16_format>{}, f, stream);
  if (element != core::Element::bf16) refuse_element();
  launch_pack(plain, stored, ToHalf<core::bf16_format>{}, f, stream);
}

void pack_fp8(const float* plain, std::uint8_t* stored, Fp8Scale* scale, core::Element element, const MatrixForm& f,
              cudaStream_t stream) {
  if (element != core::Element::e4m3 && element != core::Element::e5m2) refuse_element();
  runtime::check_cuda(cudaMemsetAsync(scale, 0, sizeof *scale, stream), "cudaMemsetAsync");
  const std::size_t n = f.plain_elements();
  constexpr std::size_t most_blocks = 1024;
  const auto blocks = static_cast<unsigned>(core::lesser((n + threads_of_block - 1) / threads_of_block, most_blocks));
  runtime::check_cuda(
      gpu::launch(find_largest, {.grid = dim3(blocks), .block = dim3(threads_of_block)}, stream, plain, n, scale),
      "find_largest");
  const core::SmallFormat& format = core::small_format(element);
  runtime::check_cuda(gpu::launch(finish_scale, {.grid = dim3(1), .block = dim3(1)}, stream, scale,
                                  core::to_float(format, format.largest())),
                      "finish_scale");
  if (element == core::Element::e4m3) return launch_pack(plain, stored, ToFp8<core::e4m3_format>{scale}, f, stream);
  launch_pack(plain, stored, ToFp8<core::e5m2_format>{scale}, f, stream);
}

void pack_int8(const float* plain, std::int8_t* stored, const Int8Quantum& q, const MatrixForm& f,
               cudaStream_t stream) {
  launch_pack(plain, stored, ToInt8{q}, f, stream);
}
void pack_int8(const std::int8_t* plain, std::int8_t* stored, const MatrixForm& f, cudaStream_t stream) {
  launch_pack(plain, stored, Same{}, f, stream);
}

void unpack(const float* stored, float* plain, const MatrixForm& f, cudaStream_t stream) {
  launch_unpack(stored, plain, Same{}, f, stream);
}
void unpack(const std::int32_t* stored, std::int32_t* plain, const MatrixForm& f, cudaStream_t stream) {
  launch_unpack(stored, plain, Same{}, f, stream);
}
void unpack_sums(const std::int32_t* stored, float* plain, float quantum, const float* column_quanta,
                 const MatrixForm& f, cudaStream_t stream) {
  launch_unpack(stored, plain, FromSum{quantum, column_quanta}, f, stream);
}

}  // namespace gradmeter::kernels::cuda
