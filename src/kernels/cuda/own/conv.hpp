// Convolution on a GPU by kernels of our own, as products whose one operand is gathered from the images where it is
// used: no unfolded copy, and every sum is one thread's (or some pieces'), so nothing is added atomically.
#pragma once
#include <cuda_runtime_api.h>

#include "kernels/cuda/own/product.hpp"
#include "kernels/pointwise.hpp"
#include "kernels/problems/problem.hpp"
#include "runtime/device_memory.hpp"

namespace gradmeter::kernels::cuda {

using runtime::DeviceSpan;

/// The product that a pass is: forward [filters × images' places], k over channels and taps; backward data
/// [channels × places], k over filters and taps; backward weights [filters × channels and taps], k over images and
/// places. k goes through each in the order of memory.
ProductExtents extents_of(const ConvShape&, Pass);

/// In the order of kernels::Op's conv: input, filters to output; output gradient, filters to input gradient; input,
/// output gradient to filters gradient. They lie as T, products and sums are fp32, summed in the order of product.cuh.
/// Zeros outside the images are multiplied as well: an infinite or NaN filter makes its border NaN.
/// Shape:  as op.hpp says; scratch: product_scratch(extents_of(shape, pass)) floats.
/// Cost:   2·m·n·k FLOP of that product: of backward data the area of a stride times those that the definition has.
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
