// SPDX-License-Identifier: Apache-2.0
// The rows for GPUs in the tables of backends, of kernel cases and of loops.
#include "kernels/cuda/backends.hpp"

#include <memory>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>

#include "core/format.hpp"
#include "kernels/backends.hpp"
#include "kernels/cases/kernel_case.hpp"
#include "kernels/cuda/device_op.hpp"
#include "kernels/op.hpp"
#include "kernels/pointwise/case.hpp"
#include "kernels/pointwise/gpu_kernels.hpp"
#include "kernels/sparse/sparse.hpp"
#include "runtime/cuda/stream.hpp"

namespace gradmeter::kernels::cuda {

// The host computes the operations for which a GPU has no library and no kernel. It works on copies of the operands,
// which the device's queues make and bring back. So training can run on such a GPU, and tests have results to compare;
// no kernel case times these operations.

/// Refuses what the host refuses.
std::string host_fallback_refusal(const Problem&);
/// "on the host: onednn brgemm:avx512_core", by the backend that the host prefers.
std::unique_ptr<Op> make_host_fallback(const Problem&, const OpOptions&, runtime::Device&);

namespace {

class HostFallback final : public Op {
 public:
  explicit HostFallback(std::unique_ptr<Op> op) : op_(std::move(op)) {}

  std::span<const Operand> inputs() const override { return op_->inputs(); }
  std::span<const Operand> outputs() const override { return op_->outputs(); }
  runtime::Cost cost() const override { return op_->cost(); }
  std::size_t scratch_bytes() const override { return op_->scratch_bytes(); }
  std::string implementation() const override { return std::string(left_to_host) + op_->implementation(); }
  std::unique_ptr<Op> packing(std::size_t input) const override { return op_->packing(input); }
  std::unique_ptr<Op> unpacking(std::size_t output) const override { return op_->unpacking(output); }
  std::unique_ptr<Op> packing_from_fp32(std::size_t input) const override { return op_->packing_from_fp32(input); }
  std::unique_ptr<Op> unpacking_to_fp32(std::size_t output) const override { return op_->unpacking_to_fp32(output); }
  void execute(Inputs in, Outputs out) override { op_->execute(in, out); }
  void bind(Inputs in, Outputs out) override { op_->bind(in, out); }

 private:
  std::unique_ptr<Op> op_;
};

}  // namespace

std::string host_fallback_refusal(const Problem& p) { return op_refusal(p); }

std::unique_ptr<Op> make_host_fallback(const Problem& p, const OpOptions& o, runtime::Device&) {
  return std::make_unique<HostFallback>(prepare(p, {.training = o.training, .quantization = o.quantization}));
}

// Our own optimizer updates on a GPU as a kernel case, in fp32 or bf16.

/// Takes what device_pointwise_refusal does not refuse.
std::unique_ptr<KernelCase> make_pointwise_case(const Problem&, const KernelCaseOptions&);

namespace {

using runtime::Buffer;

void update_bf16(PointwiseKind kind, std::span<const Buffer> x) {
  const auto stream = gpu::stream();
  const auto w = device_values<Bf16>(x[0]);
  if (kind == PointwiseKind::sgd) sgd(w, device_values<Bf16>(x[1]), case_step, {}, stream);
  if (kind == PointwiseKind::momentum)
    momentum(w, device_values<Bf16>(x[1]), device_values<Bf16>(x[2]), case_momentum, {}, stream);
  if (kind == PointwiseKind::adam)
    adam(w, device_values<Bf16>(x[1]), device_values<Bf16>(x[2]), device_values<Bf16>(x[3]), case_adam, 1, stream);
}

}  // namespace

std::unique_ptr<KernelCase> make_pointwise_case(const Problem& p, const KernelCaseOptions& o) {
  return make_device_pointwise_case(p, o, p.precision == Precision::bf16 ? update_bf16 : update_fp32_on_device,
                                    "own fused");
}

}  // namespace gradmeter::kernels::cuda

namespace gradmeter::kernels {
namespace {

using enum Precision;

void add_libraries() {
#ifdef GRADMETER_HAS_CUBLASLT
  for (const Precision p : {fp32, tf32, bf16, fp16, fp8_e4m3, fp8_e4m3_fast, fp8_e5m2, fp8_e5m2_fast, int8})
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
/// Without the library the rows still exist, to say what is missing.
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

/// Adds the cases of operations that are no Op.
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

/// Adds rows for operations that the host computes and our own kernels do not. Rows of libraries come earlier, but may
/// refuse a problem because the GPU is too old.
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
