// Recurrent layers on a GPU by kernels of our own: products of tiles, and a kernel for the cell between them. The
// definition is reference/rnn.hpp; operands are those of kernels::Op's rnn.
#pragma once
#include <cuda_runtime_api.h>

#include <cstddef>

#include "kernels/problems/problem.hpp"
#include "runtime/device_memory.hpp"

namespace gradmeter::kernels::cuda {

using runtime::DeviceSpan;

/// Floats that forward keeps for backward: the gates after their nonlinearity [steps × batch × gates × hidden]; of an
/// lstm c after each step, of a gru r·h [steps × batch × hidden].
std::size_t rnn_kept(const RnnShape&);
/// Floats of the scratch memory.
std::size_t rnn_forward_scratch(const RnnShape&);
std::size_t rnn_backward_scratch(const RnnShape&);

struct RnnOperands {
  DeviceSpan<const float> input, state, memory, weights, recurrent, bias;  ///< memory of an lstm alone, else empty
};
/// Products are summed in the order of product.cuh, first that of the input with the bias, then the state's is added.
/// Exponentials are CUDA's: a gate is off by 2^-20 at most besides its sum's rounding.
/// Cost:   2·gates·hidden·(input + hidden)·batch·steps FLOP; two or four kernels a step.
/// Errors: std::invalid_argument when a length differs; BackendError when a launch fails.
struct RnnResults {
  DeviceSpan<float> output, kept;
};
void rnn_forward(const RnnShape&, const RnnOperands&, const RnnResults&, DeviceSpan<float> scratch, cudaStream_t);

/// Backpropagation through time over what forward has left. Gradients of weights, recurrent and bias are added to what
/// is there; a bias's in the order of rows.
/// Cost:   twice forward's FLOP.
struct RnnForwardState {
  DeviceSpan<const float> output, kept, output_gradient;
};
struct RnnGradientSpans {
  DeviceSpan<float> input, state, memory, weights, recurrent, bias;  ///< memory of an lstm alone, else empty
};
void rnn_backward(const RnnShape&, const RnnOperands&, const RnnForwardState&, const RnnGradientSpans&,
                  DeviceSpan<float> scratch, cudaStream_t);

}  // namespace gradmeter::kernels::cuda
