// SPDX-License-Identifier: Apache-2.0
// Convolution on a GPU by our own kernels: matrix products that gather one operand from the images as they go, without
// an unfolded copy. One thread adds up each sum, or each piece of it, so nothing is added atomically.
#pragma once
#include <cuda_runtime_api.h>

#include "kernels/gemm/gpu_kernels.hpp"
#include "kernels/pointwise/pointwise.hpp"
#include "kernels/problems/problem.hpp"
#include "runtime/device_memory.hpp"

namespace gradmeter::kernels::cuda {

using runtime::DeviceSpan;

/// The extents m, n and k of the matrix product that computes a pass. Taps are the elements of a filter's window; in
/// channels × taps and filters × taps they run fastest.
/// Forward: m = filters, n = output pixels of all images, k = channels × taps.
/// Backward data: m = channels, n = input pixels of all images, k = filters × taps.
/// Backward weights: m = filters, n = channels × taps, k = output pixels of all images.
ProductExtents extents_of(const ConvShape&, Pass);

/// Operands are in the order of kernels::Op's conv: input, filters to output; output gradient, filters to input
/// gradient; input, output gradient to filters gradient. They are stored as T. Products and sums are fp32, in the order
/// of gemm/product.cuh. Zeros outside the images are multiplied too, so an infinite or NaN filter makes the border NaN.
/// Shape:  as op.hpp says; scratch: product_scratch(extents_of(shape, pass)) floats.
/// Cost:   2·m·n·k FLOP with the extents of extents_of; for backward data this is the FLOP of the definition times
///         stride height · stride width.
/// Errors: std::invalid_argument when a length differs; BackendError when a launch fails.
template <class T>
struct ConvOperands {
  DeviceSpan<const T> left, right;
  DeviceSpan<T> result;
  DeviceSpan<float> scratch;
};
void convolve(const ConvShape&, Pass, const ConvOperands<float>&, cudaStream_t);
void convolve(const ConvShape&, Pass, const ConvOperands<Bf16>&, cudaStream_t);
void convolve(const ConvShape&, Pass, const ConvOperands<Fp16>&, cudaStream_t);

}  // namespace gradmeter::kernels::cuda
