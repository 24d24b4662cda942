// The functions behind add_cuda_ops() that kernels of our own compute, one group for each file of operations.
#pragma once
#include "kernels/op.hpp"

namespace gradmeter::kernels::cuda {

std::string own_gemm_refusal(const Problem&);
std::unique_ptr<Op> make_own_gemm(const Problem&, const OpOptions&, runtime::Device&);

std::string own_lns_refusal(const Problem&);
std::unique_ptr<Op> make_own_lns(const Problem&, const OpOptions&, runtime::Device&);

std::string own_conv_refusal(const Problem&);
std::unique_ptr<Op> make_own_conv(const Problem&, const OpOptions&, runtime::Device&);

std::string own_rnn_refusal(const Problem&);
std::unique_ptr<Op> make_own_rnn(const Problem&, const OpOptions&, runtime::Device&);

}  // namespace gradmeter::kernels::cuda
