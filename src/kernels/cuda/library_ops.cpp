#include "kernels/cuda/library_ops.hpp"

#include <set>
#include <utility>

#include "core/format.hpp"
#include "kernels/cuda/host_fallback.hpp"
#include "kernels/op.hpp"
#ifdef GRADMETER_HAS_CUBLASLT
#include <cublasLt.h>

#include "kernels/cuda/cublaslt.hpp"
#endif
#ifdef GRADMETER_HAS_CUDNN
#include <cudnn.h>

#include "kernels/cuda/cudnn_conv.hpp"
#include "kernels/cuda/cudnn_rnn.hpp"
#endif
#ifdef GRADMETER_HAS_CUSPARSE
#include <cusparse.h>
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

/// Of a number such as 130100.
[[maybe_unused]] std::string dotted(std::size_t version) {
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

}  // namespace

std::map<std::string, std::string> cuda_library_versions() {
  std::map<std::string, std::string> all;
#ifdef GRADMETER_HAS_CUBLASLT
  all["cuBLASLt"] = dotted(cublasLtGetVersion());
#endif
#ifdef GRADMETER_HAS_CUDNN
  all["cuDNN"] = dotted(cudnnGetVersion());
#endif
#ifdef GRADMETER_HAS_CUSPARSE
  int major = 0, minor = 0, patch = 0;
  const bool known = cusparseGetProperty(MAJOR_VERSION, &major) == CUSPARSE_STATUS_SUCCESS &&
                     cusparseGetProperty(MINOR_VERSION, &minor) == CUSPARSE_STATUS_SUCCESS &&
                     cusparseGetProperty(PATCH_LEVEL, &patch) == CUSPARSE_STATUS_SUCCESS;
  all["cuSPARSE"] = known ? fmt::format("{}.{}.{}", major, minor, patch) : "unknown";
#endif
  return all;
}

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
