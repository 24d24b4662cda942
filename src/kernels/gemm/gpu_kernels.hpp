// SPDX-License-Identifier: Apache-2.0
// Dense products on a GPU by our own kernels, conversions of operands for libraries, and how a product is divided into
// pieces. This division, which decides the order of sums, depends on the shape alone: all GPUs give the same bits.
#pragma once
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "core/element.hpp"
#include "core/host_device.hpp"
#include "kernels/gemm/gemm.hpp"
#include "kernels/pointwise/pointwise.hpp"
#include "runtime/device_memory.hpp"

namespace gradmeter::kernels::cuda {

/// The extents of `batches` products of [m × k] by [k × n]; each extent is below 2^31.
struct ProductExtents {
  unsigned m, n, k, batches;
};

/// The number of thread blocks that keep a GPU busy: about as many as it has multiprocessors.
inline constexpr unsigned busy_blocks = 128;

/// The pieces of k: [0, length), [length, 2·length), …
struct ProductPieces {
  unsigned count, length;
};
/// Divides k into pieces if C has few tiles but long sums, as for gradients of weights, so that enough thread blocks
/// have work. Pieces have about 256 summands or more. If there are several, pieces times tiles are at most busy_blocks.
inline ProductPieces pieces_of(const ProductExtents& e) {
  constexpr unsigned tile = 64, least = 256;
  const std::size_t tiles = (std::size_t{e.m} + tile - 1) / tile * ((std::size_t{e.n} + tile - 1) / tile) * e.batches;
  const std::size_t most = std::max<std::size_t>(busy_blocks / std::max<std::size_t>(tiles, 1), 1);
  const auto wanted = static_cast<unsigned>(std::clamp<std::size_t>(e.k / least, 1, most));
  const unsigned length = (e.k + wanted - 1) / wanted;
  return {(e.k + length - 1) / length, length};
}

/// The number of floats of scratch memory for the pieces' sums; 0 if there is one piece.
inline std::size_t product_scratch(const ProductExtents& e) {
  const unsigned pieces = pieces_of(e).count;
  return pieces == 1 ? 0 : std::size_t{pieces} * e.batches * e.m * e.n;
}

// Dense products on a GPU by our own kernels, for training without a vendor's library and as the reference for its
// results.

using runtime::DeviceSpan;

/// Operands are stored as T; products and sums are fp32. `bias` is empty if the shape has none.
/// Shape:  a [count × m × k], b [count × k × n] (or transposed, as the GemmShape says), bias [n], c [count × m × n],
///         scratch [gemm_scratch(shape)].
template <class T>
struct GemmOperands {
  DeviceSpan<const T> a, b;
  DeviceSpan<const float> bias;
  DeviceSpan<T> c;
  DeviceSpan<float> scratch;
};
ProductExtents extents_of(const GemmShape&);
inline std::size_t gemm_scratch(const GemmShape& s) { return product_scratch(extents_of(s)); }

/// C = op(A)·op(B), then plus the old C, plus the bias, and ReLU, as the shape asks; each step rounds to fp32. Sums are
/// in the order of gemm/product.cuh, so all GPUs give the same bits.
/// Cost:   2·count·m·n·k FLOP; an element of A is read once for every 64 columns of C, one of B once for every 64 rows
/// (32 where tiles of 64 by 64 would be too few to keep a GPU busy).
/// Errors: std::invalid_argument when a length differs, and for a packed operand; BackendError when a launch fails.
void gemm(const GemmShape&, const GemmOperands<float>&, cudaStream_t);
void gemm(const GemmShape&, const GemmOperands<Bf16>&, cudaStream_t);
void gemm(const GemmShape&, const GemmOperands<Fp16>&, cudaStream_t);

/// A matrix in device memory, which may be a part of a larger one. Strides are in elements.
template <class T>
struct DeviceMatrix {
  T* first;
  std::size_t row_stride, column_stride = 1;
  DeviceMatrix transposed() const { return {first, column_stride, row_stride}; }
};
/// The fp32 product C = A·B, or with `accumulate` C += A·B, plus a bias if there is one. The column stride of C must be
/// 1. `multiply` queues the product on the stream; if m or k is 0, it leaves C as it is. Errors: std::invalid_argument
/// if scratch does not have product_scratch(extents) floats; BackendError when a launch fails.
struct MatrixProduct {
  unsigned m, n, k;
  DeviceMatrix<const float> a, b;
  DeviceMatrix<float> c;
  bool accumulate = false;
  const float* bias = nullptr;  ///< [n], in the device's memory
};
void multiply(const MatrixProduct&, DeviceSpan<float> scratch, cudaStream_t);

// Conversions of matrices between their plain form and the form that a library's product takes: other formats,
// transposed rows, and padding with zeros.

/// `count` matrices, one after another. Stored: [stored_rows x stored_columns], where the first rows x columns are the
/// matrix and the rest is zero. Plain: [rows x columns], or with `transposed` [columns x rows].
struct MatrixForm {
  std::size_t count = 1, rows = 0, columns = 0, stored_rows = 0, stored_columns = 0;
  bool transposed = false;

  GRADMETER_HOST_DEVICE constexpr std::size_t plain_elements() const { return count * rows * columns; }
  GRADMETER_HOST_DEVICE constexpr std::size_t stored_elements() const { return count * stored_rows * stored_columns; }
};

/// The scale of an fp8 operand: the factor by which cuBLASLt multiplies the operand's numbers. In memory it lies right
/// behind these numbers.
struct Fp8Scale {
  float factor;
  std::uint32_t largest_bits;  ///< bits of the operand's largest finite magnitude in fp32
  std::uint32_t padding[2];
};

/// All functions queue their work on the stream. Errors: BackendError when a launch fails; std::logic_error for an
/// element other than f16 and bf16 (pack_halves), or e4m3 and e5m2 (pack_fp8).

/// Rounds to nearest even; numbers that are too large become infinite.
void pack_halves(const float* plain, std::uint16_t* stored, core::Element, const MatrixForm&, cudaStream_t);
/// Divides by a scale with which the largest finite number becomes the format's largest (current scaling), and writes
/// that scale. NaN stays NaN, and infinities stay or become NaN, so that they are seen. `scale` is aligned to 16 bytes.
void pack_fp8(const float* plain, std::uint8_t* stored, Fp8Scale* scale, core::Element, const MatrixForm&,
              cudaStream_t);
/// x becomes the whole number in -128 … 127 that is nearest to x / quantum + zero_point. If row_quanta is given, row r
/// uses row_quanta[r] as its quantum.
struct Int8Quantum {
  float quantum = 1;
  float zero_point = 0;
  const float* row_quanta = nullptr;  ///< in the device's memory
};
void pack_int8(const float* plain, std::int8_t* stored, const Int8Quantum&, const MatrixForm&, cudaStream_t);
void pack_int8(const std::int8_t* plain, std::int8_t* stored, const MatrixForm&, cudaStream_t);

void unpack(const float* stored, float* plain, const MatrixForm&, cudaStream_t);
void unpack(const std::int32_t* stored, std::int32_t* plain, const MatrixForm&, cudaStream_t);
/// Multiplies each sum by `quantum`, and if column_quanta (in the device's memory) is not null, the sums of column j
/// also by column_quanta[j].
void unpack_sums(const std::int32_t* stored, float* plain, float quantum, const float* column_quanta, const MatrixForm&,
                 cudaStream_t);

}  // namespace gradmeter::kernels::cuda
