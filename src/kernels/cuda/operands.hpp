// What operations of a GPU list as operands, whichever backend computes them: all lie in memory as they are defined.
#pragma once
#include <string_view>
#include <vector>

#include "core/element.hpp"
#include "kernels/op.hpp"

namespace gradmeter::kernels::cuda {

/// Not packed.
Operand plain_operand(std::string_view name, core::Element, std::size_t elements, bool added_to = false);

struct OperandLists {
  std::vector<Operand> inputs, outputs;
};
/// In the order of Op's description.
OperandLists conv_operands(const ConvShape&, Pass, core::Element);

/// Gradients of weights, recurrent and bias are fp32.
struct RnnElements {
  core::Element layer;     ///< input, output, state, weights, recurrent
  core::Element memory;    ///< of an lstm, and of biases
  core::Element gradient;  ///< of output, input, state and memory
};
/// In the order of Op's description. `kept_bytes`: what forward keeps for backward.
OperandLists rnn_operands(const RnnShape&, Pass, bool training, const RnnElements&, std::size_t kept_bytes);

}  // namespace gradmeter::kernels::cuda
