#include "kernels/cuda/own_ops.hpp"

#include "kernels/cuda/own_makers.hpp"

namespace gradmeter::kernels::cuda {

void add_cuda_own_ops() {
  using enum Precision;
  using enum KernelKind;
  constexpr std::string_view gemm_source = "own, tiles in shared memory, sums in fp32";
  for (const Precision p : {fp32, bf16, fp16})
    add_op_backend({"own", gemm_source, gemm, p, "cuda", own_gemm_refusal, make_own_gemm});
}

}  // namespace gradmeter::kernels::cuda
