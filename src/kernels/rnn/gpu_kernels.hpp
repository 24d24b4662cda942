// SPDX-License-Identifier: Apache-2.0
// Recurrent layers on a GPU by our own kernels: products in tiles, and between them a kernel for the pointwise part of
// the cell. rnn/reference.hpp defines the layers, kernels/op.hpp their operands.
#pragma once
#include <cuda_runtime_api.h>

#include <cstddef>

#include "core/element.hpp"
#include "kernels/problems/problem.hpp"
#include "runtime/device_memory.hpp"

namespace gradmeter::kernels::cuda {

using runtime::DeviceSpan;

/// The number of floats that forward keeps for backward: the gates after their nonlinearity [steps × batch × gates ×
/// hidden]; for an lstm also c after each step, for a gru also r·h of each step [steps × batch × hidden].
std::size_t rnn_kept(const RnnShape&);
/// The number of floats of scratch memory for a pass.
std::size_t rnn_forward_scratch(const RnnShape&);
std::size_t rnn_backward_scratch(const RnnShape&);

/// The operands of a layer, or their gradients.
template <class T>
struct RnnSpans {
  DeviceSpan<T> input, state, memory, weights, recurrent, bias;  ///< memory is empty except for an lstm
};
using RnnOperands = RnnSpans<const float>;
using RnnGradientSpans = RnnSpans<float>;

/// Queues the forward pass on the stream. A gate's sum is the product with the input, plus the bias, plus the product
/// with the state; products are in the order of gemm/product.cuh. Exponentials are CUDA's: they add at most 2^-20 to
/// the error that a gate has from the rounding of its sum.
/// Cost:   2·gates·hidden·(input + hidden)·batch·steps FLOP; two kernels a step, four for a gru, and one more for each
///         product that is divided into pieces.
/// Errors: std::invalid_argument when a length differs; BackendError when a launch fails.
void rnn_forward(const RnnShape&, const RnnOperands&, DeviceSpan<float> output, DeviceSpan<float> kept,
                 DeviceSpan<float> scratch, cudaStream_t);

/// The inputs of backward besides the operands: the results of forward, and the gradient of the output.
struct RnnBackwardInputs {
  DeviceSpan<const float> output, kept, output_gradient;
};
/// Queues backpropagation through time on the stream. It overwrites the gradients of input, state and memory, and adds
/// to those of weights, recurrent and bias. For the bias, rows are added up in the order of pointwise/row_sums.hpp.
/// Cost:   twice forward's FLOP.
/// Errors: as rnn_forward.
void rnn_backward(const RnnShape&, const RnnOperands&, const RnnBackwardInputs&, const RnnGradientSpans&,
                  DeviceSpan<float> scratch, cudaStream_t);

// Conversions of a recurrent layer's weights for a library. In our layout they are one matrix [inputs x gates x
// hidden]; the library has a matrix [hidden x inputs] for each gate.

/// One gate's weights within those of the layer.
struct GateMatrix {
  std::size_t inputs, gates, hidden;
  std::size_t gate;  ///< the index of the gate in our layout
};

/// `copy_gate_to_library` copies a gate's weights from our layout to the library's; `add_gate_gradient` adds a gate's
/// gradient in the library's layout to ours. Both queue their work on the stream. Element: f32, f16, bf16. Errors:
/// BackendError when a launch fails; std::logic_error for another element.

void copy_gate_to_library(const std::byte* ours, std::byte* theirs, core::Element, const GateMatrix&, cudaStream_t);
/// `ours` is fp32, whatever the element of `theirs`.
void add_gate_gradient(const std::byte* theirs, float* ours, core::Element, const GateMatrix&, cudaStream_t);

}  // namespace gradmeter::kernels::cuda
