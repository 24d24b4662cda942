// Convolutions on a GPU by cuDNN, forward and backward: fp32 without tf32; bf16 and fp16 with sums in fp32. Images and
// filters lie as the problem has them (NCHW, KCRS). Algorithms are direct ones that give the same bits each time, where
// the library has one: Winograd's and Fourier's transforms lose digits that a check of single elements would miss.
#pragma once
#include <memory>
#include <string>

#include "kernels/op.hpp"

namespace gradmeter::kernels::cuda {

/// fp32, bf16, fp16.
std::string cudnn_conv_refusal(const Problem&);
std::unique_ptr<Op> make_cudnn_conv_op(const Problem&, const OpOptions&, runtime::Device&);

}  // namespace gradmeter::kernels::cuda
