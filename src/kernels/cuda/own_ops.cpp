#include "kernels/cuda/own_ops.hpp"

#include "kernels/cuda/own_makers.hpp"

namespace gradmeter::kernels::cuda {

void add_cuda_own_ops() {
  using enum Precision;
  using enum KernelKind;
  constexpr std::string_view gemm_source = "own, tiles in shared memory, sums in fp32";
  constexpr std::string_view conv_source = "own, a product with an operand gathered from the images, sums in fp32";
  constexpr std::string_view rnn_source = "own, products and a kernel for the cell, sums in fp32";
  constexpr std::string_view lns_source = "own, tiles in shared memory; Coleman et al., IEEE Trans. Computers 2000";
  for (const Precision p : {fp32, bf16, fp16}) {
    add_op_backend({"own", gemm_source, gemm, p, "cuda", own_gemm_refusal, make_own_gemm});
    add_op_backend({"own", conv_source, conv, p, "cuda", own_conv_refusal, make_own_conv});
    add_op_backend({"own", rnn_source, rnn, p, "cuda", own_rnn_refusal, make_own_rnn});
  }
  for (const Precision p : {lns16, lns16_linear, lns16_f7, lns16_f6})
    add_op_backend({"own", lns_source, gemm, p, "cuda", own_lns_refusal, make_own_lns});
}

}  // namespace gradmeter::kernels::cuda
