// Dense products on a GPU by kernels of our own: for training without a vendor's library, and as what its results are
// held against.
#pragma once
#include <cuda_runtime_api.h>

#include "kernels/cuda/own/product.hpp"
#include "kernels/gemm.hpp"
#include "kernels/pointwise.hpp"
#include "runtime/device_memory.hpp"

namespace gradmeter::kernels::cuda {

using runtime::DeviceSpan;

/// Operands lie as T, products and sums are fp32. `bias` is empty where the problem has none.
/// Shape:  a [count × m × k], b [count × k × n] (or as the problem transposes them), bias [n], c [count × m × n];
///         scratch: as many floats as gemm_scratch says.
template <class T>
struct GemmOperands {
  DeviceSpan<const T> a, b;
  DeviceSpan<const float> bias;
  DeviceSpan<T> c;
  DeviceSpan<float> scratch;
};
ProductExtents extents_of(const GemmShape&);
inline std::size_t gemm_scratch(const GemmShape& s) { return product_scratch(extents_of(s)); }

/// C = op(A)·op(B) (+ C) (+ bias) (ReLU), in this order, each rounded to fp32. The sum's order is that of product.cuh,
/// whatever the GPU: the same bits on every one.
/// Cost:   2·count·m·n·k FLOP; each element of an operand is read once for 64 (or 32) rows or columns of the result.
/// Errors: std::invalid_argument when a length differs, and for a packed operand; BackendError when a launch fails.
void gemm(const GemmShape&, const GemmOperands<float>&, cudaStream_t);
void gemm(const GemmShape&, const GemmOperands<Bf16>&, cudaStream_t);
void gemm(const GemmShape&, const GemmOperands<Fp16>&, cudaStream_t);

/// A matrix within a larger one, in device memory.
template <class T>
struct DeviceMatrix {
  T* first;
  std::size_t row_stride, column_stride = 1;
  DeviceMatrix transposed() const { return {first, column_stride, row_stride}; }
};
/// C = A·B, or C += A·B, of fp32 matrices; C's columns are neighbours. Nothing for m or k of 0.
/// Errors: std::invalid_argument when scratch is not product_scratch of the extents; BackendError when a launch fails.
struct MatrixProduct {
  unsigned m, n, k;
  DeviceMatrix<const float> a, b;
  DeviceMatrix<float> c;
  bool accumulate = false;
  const float* bias = nullptr;  ///< [n], in device memory
};
void multiply(const MatrixProduct&, DeviceSpan<float> scratch, cudaStream_t);

}  // namespace gradmeter::kernels::cuda
