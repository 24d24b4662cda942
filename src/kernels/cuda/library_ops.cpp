#include "kernels/cuda/library_ops.hpp"

#include <set>
#include <utility>

#include "kernels/cuda/host_fallback.hpp"
#include "kernels/op.hpp"
#ifdef GRADMETER_HAS_CUBLASLT
#include "kernels/cuda/cublaslt.hpp"
#endif
#ifdef GRADMETER_HAS_CUDNN
#include "kernels/cuda/cudnn_conv.hpp"
#include "kernels/cuda/cudnn_rnn.hpp"
#endif

namespace gradmeter::kernels {
namespace {

/// After all others, for each operation and precision that the host has.
void add_host_fallbacks() {
  std::set<std::pair<KernelKind, Precision>> of_the_host;
  for (const OpBackend& row : op_backends())
    if (row.device == "host") of_the_host.emplace(row.operation, row.precision);
  for (const auto& [operation, precision] : of_the_host)
    add_op_backend({"host", "the host's operation on copies of the operands", operation, precision, "cuda",
                    cuda::host_fallback_refusal, cuda::make_host_fallback, true});
}

}  // namespace

void add_cuda_library_ops() {
#ifdef GRADMETER_HAS_CUBLASLT
  using enum Precision;
  for (const Precision p : {fp32, bf16, fp16, fp8_e4m3, fp8_e5m2, int8})
    add_op_backend({"cublaslt", "cuBLASLt matmul, docs.nvidia.com/cuda/cublas", KernelKind::gemm, p, "cuda",
                    cuda::cublaslt_refusal, cuda::make_cublaslt_op});
#endif
#ifdef GRADMETER_HAS_CUDNN
  for (const Precision p : {Precision::fp32, Precision::bf16, Precision::fp16}) {
    add_op_backend({"cudnn", "cuDNN 9 convolutions, docs.nvidia.com/deeplearning/cudnn", KernelKind::conv, p, "cuda",
                    cuda::cudnn_conv_refusal, cuda::make_cudnn_conv_op});
    add_op_backend({"cudnn", "cuDNN 9 recurrent layers, docs.nvidia.com/deeplearning/cudnn", KernelKind::rnn, p, "cuda",
                    cuda::cudnn_rnn_refusal, cuda::make_cudnn_rnn_op});
  }
#endif
  add_host_fallbacks();
}

}  // namespace gradmeter::kernels
