#include "kernels/cuda/library_ops.hpp"

#include "kernels/op.hpp"
#ifdef GRADMETER_HAS_CUBLASLT
#include "kernels/cuda/cublaslt.hpp"
#endif

namespace gradmeter::kernels {

void add_cuda_library_ops() {
#ifdef GRADMETER_HAS_CUBLASLT
  using enum Precision;
  for (const Precision p : {fp32, bf16, fp16, fp8_e4m3, fp8_e5m2, int8})
    add_op_backend({"cublaslt", "cuBLASLt matmul, docs.nvidia.com/cuda/cublas", KernelKind::gemm, p, "cuda",
                    cuda::cublaslt_refusal, cuda::make_cublaslt_op});
#endif
}

}  // namespace gradmeter::kernels
