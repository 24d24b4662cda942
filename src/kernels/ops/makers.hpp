// The functions behind op_backends(), one group for each file of operations. Users call prepare.
#pragma once
#include "kernels/op.hpp"

namespace gradmeter::kernels {

/// What no backend of the operation takes.
std::string gemm_shape_refusal(const Problem&);
std::string lns_shape_refusal(const Problem&);  ///< of what a product in a logarithmic precision asks besides
std::string conv_shape_refusal(const Problem&);
std::string rnn_shape_refusal(const Problem&);

std::string gemm_reference_refusal(const Problem&);
std::unique_ptr<Op> make_gemm_reference(const Problem&, const OpOptions&, runtime::Device&);

std::string gemm_op_refusal(const Problem&);
std::unique_ptr<Op> make_gemm_op(const Problem&, const OpOptions&, runtime::Device&);

std::string lns_op_refusal(const Problem&);
std::unique_ptr<Op> make_lns_op(const Problem&, const OpOptions&, runtime::Device&);

/// bf16 of what fp32 takes.
std::string converted_op_refusal(const Problem&);
std::unique_ptr<Op> make_converted_op(const Problem&, const OpOptions&, runtime::Device&);

/// Takes what fp32 takes, in a precision whose row says `emulated`.
std::string emulated_op_refusal(const Problem&);
std::unique_ptr<Op> make_emulated_op(const Problem&, const OpOptions&, runtime::Device&);

std::string conv_op_refusal(const Problem&);
std::unique_ptr<Op> make_conv_op(const Problem&, const OpOptions&, runtime::Device&);

std::string rnn_op_refusal(const Problem&);
std::unique_ptr<Op> make_rnn_op(const Problem&, const OpOptions&, runtime::Device&);

}  // namespace gradmeter::kernels
