// Recurrent layers on a GPU by cuDNN: one layer, one direction, vanilla and lstm, forward and backward, in fp32 without
// tf32, bf16 and fp16. Weights are brought into the library's order within each call. All operands have the problem's
// format, but for the gradients of weights and bias, which are fp32. `kept` is the library's reserve space.
#pragma once
#include <memory>
#include <string>

#include "kernels/op.hpp"

namespace gradmeter::kernels::cuda {

std::string cudnn_rnn_refusal(const Problem&);
std::unique_ptr<Op> make_cudnn_rnn_op(const Problem&, const OpOptions&, runtime::Device&);

}  // namespace gradmeter::kernels::cuda
