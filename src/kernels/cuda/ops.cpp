#include "kernels/cuda/ops.hpp"

#include <mutex>
#include <set>
#include <utility>

#include "kernels/cases/makers.hpp"
#include "kernels/cases/pointwise_case.hpp"
#include "kernels/cuda/host_fallback.hpp"
#include "kernels/cuda/loops/loops.hpp"
#include "kernels/cuda/own/makers.hpp"
#include "kernels/cuda/pointwise_case.hpp"
#include "kernels/op.hpp"
#ifdef GRADMETER_HAS_CUBLASLT
#include "kernels/cuda/libraries/cublaslt.hpp"
#endif
#ifdef GRADMETER_HAS_CUDNN
#include "kernels/cuda/libraries/cudnn_conv.hpp"
#include "kernels/cuda/libraries/cudnn_rnn.hpp"
#endif
#ifdef GRADMETER_HAS_CUSPARSE
#include "kernels/cuda/libraries/cusparse_case.hpp"
#endif
#ifdef GRADMETER_HAS_CUSPARSELT
#include "kernels/cuda/libraries/cusparselt_case.hpp"
#else
#include <stdexcept>

#include "core/format.hpp"
#endif

namespace gradmeter::kernels {
namespace {

using enum Precision;

void add_libraries() {
#ifdef GRADMETER_HAS_CUBLASLT
  for (const Precision p : {fp32, bf16, fp16, fp8_e4m3, fp8_e5m2, int8})
    add_op_backend({"cublaslt", "cuBLASLt matmul, docs.nvidia.com/cuda/cublas", KernelKind::gemm, p, "cuda",
                    cuda::cublaslt_refusal, cuda::make_cublaslt_op});
#endif
#ifdef GRADMETER_HAS_CUDNN
  for (const Precision p : {fp32, bf16, fp16}) {
    add_op_backend({"cudnn", "cuDNN 9 convolutions, docs.nvidia.com/deeplearning/cudnn", KernelKind::conv, p, "cuda",
                    cuda::cudnn_conv_refusal, cuda::make_cudnn_conv_op});
    add_op_backend({"cudnn", "cuDNN 9 recurrent layers, docs.nvidia.com/deeplearning/cudnn", KernelKind::rnn, p, "cuda",
                    cuda::cudnn_rnn_refusal, cuda::make_cudnn_rnn_op});
  }
#endif
}

void add_own() {
  using namespace cuda;
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

#ifdef GRADMETER_HAS_CUSPARSELT
constexpr auto cusparselt_refusal = cuda::cusparselt_case_refusal;
constexpr auto cusparselt_bytes = cuda::cusparselt_case_bytes;
constexpr auto make_cusparselt = cuda::make_cusparselt_case;
#else
/// The rows are there all the same, to say what is missing.
std::string cusparselt_refusal(const Problem& p) {
  return fmt::format(
      "sparse products in {} on a GPU are cuSPARSELt's, which is not built in: run scripts/cusparselt.sh and configure "
      "again",
      name(p.precision));
}
constexpr auto cusparselt_bytes = sparse_case_bytes;
std::unique_ptr<KernelCase> make_cusparselt(const Problem& p, const KernelCaseOptions&) {
  throw std::logic_error(cusparselt_refusal(p));
}
#endif

/// Of operations that are no Op.
void add_cases() {
#ifdef GRADMETER_HAS_CUSPARSE
  add_kernel_case({"cusparse", "cuSPARSE SpMM, docs.nvidia.com/cuda/cusparse", KernelKind::sparse, fp32,
                   cuda::cusparse_case_refusal, sparse_case_bytes, cuda::make_cusparse_case, "cuda"});
#endif
  for (const Precision p : {bf16, fp16, fp8_e4m3, int8})
    add_kernel_case({"cusparselt", "cuSPARSELt matmul of 2:4, docs.nvidia.com/cuda/cusparselt", KernelKind::sparse, p,
                     cusparselt_refusal, cusparselt_bytes, make_cusparselt, "cuda"});
  for (const Precision p : {fp32, bf16})
    add_kernel_case({"own", "own: updates of optimizers in one pass", KernelKind::pointwise, p,
                     device_pointwise_refusal, pointwise_case_bytes, cuda::make_pointwise_case, "cuda"});
}

/// Where the host has an operation and we have no kernel. A library's row stays before it: it refuses what its GPU is
/// too old for.
void add_host_fallbacks() {
  std::set<std::pair<KernelKind, Precision>> wanted;
  for (const OpBackend& row : op_backends())
    if (row.device == "host") wanted.emplace(row.operation, row.precision);
  for (const OpBackend& row : op_backends())
    if (row.name == "own" && row.device == "cuda") wanted.erase({row.operation, row.precision});
  for (const auto& [operation, precision] : wanted)
    add_op_backend({"host", "the host's operation on copies of the operands", operation, precision, "cuda",
                    cuda::host_fallback_refusal, cuda::make_host_fallback, true});
}

}  // namespace

void add_cuda_ops() {
  static std::once_flag added;
  std::call_once(added, [] {
    add_libraries();
    add_own();
    add_cases();
    cuda::add_cuda_loops();
    add_host_fallbacks();
  });
}

}  // namespace gradmeter::kernels
