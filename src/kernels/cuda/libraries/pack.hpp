// Matrices between their plain form and what a library's product takes: other formats, rows in the other direction,
// zeros up to the extents that it asks for.
#pragma once
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "core/element.hpp"

namespace gradmeter::kernels::cuda {

/// `count` matrices, one after another. Stored: [stored_rows x stored_columns], of which the first rows x columns are
/// the matrix and the others zero. Plain: [rows x columns], or with `transposed` [columns x rows].
struct MatrixForm {
  std::size_t count = 1, rows = 0, columns = 0, stored_rows = 0, stored_columns = 0;
  bool transposed = false;

  constexpr std::size_t plain_elements() const { return count * rows * columns; }
  constexpr std::size_t stored_elements() const { return count * stored_rows * stored_columns; }
};

/// Behind the numbers of an operand in fp8: what they are multiplied by, as cuBLASLt reads it, and what it is made of.
struct Fp8Scale {
  float factor;
  std::uint32_t largest_bits;  ///< of the operand's largest finite magnitude in fp32
  std::uint32_t padding[2];
};

/// All are queued on the stream. Element: f16, bf16; e4m3, e5m2. Errors: BackendError when a launch fails.

/// Rounded to nearest even; what is too large becomes infinite.
void pack_halves(const float* plain, std::uint16_t* stored, core::Element, const MatrixForm&, cudaStream_t);
/// The largest finite number becomes the format's largest (current scaling); NaN and infinities stay one or become
/// NaN, so that they are seen. `scale` is 16-byte aligned.
void pack_fp8(const float* plain, std::uint8_t* stored, Fp8Scale* scale, core::Element, const MatrixForm&,
              cudaStream_t);
/// To nearest whole numbers of -128 … 127: x / quantum + zero. Of row r by row_quanta[r] where they are given.
struct Int8Quantum {
  float quantum = 1;
  float zero = 0;
  const float* row_quanta = nullptr;  ///< on the device
};
void pack_int8(const float* plain, std::int8_t* stored, const Int8Quantum&, const MatrixForm&, cudaStream_t);
void pack_int8(const std::int8_t* plain, std::int8_t* stored, const MatrixForm&, cudaStream_t);

void unpack(const float* stored, float* plain, const MatrixForm&, cudaStream_t);
void unpack(const std::int32_t* stored, std::int32_t* plain, const MatrixForm&, cudaStream_t);
/// Times quantum, and times column_quanta of the column where they are given (on the device).
void unpack_sums(const std::int32_t* stored, float* plain, float quantum, const float* column_quanta, const MatrixForm&,
                 cudaStream_t);

}  // namespace gradmeter::kernels::cuda
