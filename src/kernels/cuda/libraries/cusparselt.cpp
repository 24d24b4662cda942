#include "kernels/cuda/libraries/cusparselt.hpp"

#include <array>
#include <stdexcept>
#include <variant>

#include "core/error.hpp"
#include "core/format.hpp"
#include "kernels/problems/shape.hpp"
#include "runtime/cuda/device.hpp"

namespace gradmeter::kernels::cuda {
namespace {

using core::Element;

constexpr float scale_of_product = 1, scale_of_old = 0;  // of float for sums of int32 too
constexpr cusparseOrder_t row_major = CUSPARSE_ORDER_ROW;
constexpr std::uint32_t operand_alignment = 16;  // of each matrix in bytes: all are allocations of their own

cudaDataType cuda_type(Element e) {
  switch (e) {
    case Element::bf16:
      return CUDA_R_16BF;
    case Element::f16:
      return CUDA_R_16F;
    case Element::i8:
      return CUDA_R_8I;
    case Element::i32:
      return CUDA_R_32I;
    case Element::e4m3:
      return CUDA_R_8F_E4M3;
    default:
      return CUDA_R_32F;
  }
}

std::int64_t count_of(std::size_t n) { return static_cast<std::int64_t>(n); }

/// Source: the table "Support SM arch" of cuSPARSELt 0.10.
std::string capability_refusal(Precision p) {
  int device = 0;
  cudaDeviceProp properties{};
  runtime::check_cuda(cudaGetDevice(&device), "cudaGetDevice");
  runtime::check_cuda(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties");
  const int least = p == Precision::fp8_e4m3 ? 9 : 8;
  if (properties.major < least)
    return fmt::format("2:4 products in {} need a GPU of compute capability {}.0; this one has {}.{}", name(p), least,
                       properties.major, properties.minor);
  if (p == Precision::int8 && properties.major == 10 && properties.minor == 3)
    return "cuSPARSELt has no int8 on compute capability 10.3";
  return {};
}

}  // namespace

void check_cusparselt(cusparseStatus_t status, const char* call, std::source_location where) {
  if (status != CUSPARSE_STATUS_SUCCESS)
    throw core::BackendError("cuSPARSELt", call, cusparseLtGetErrorString(status), where);
}

void release_cusparselt(cusparseStatus_t status) noexcept {
  if (status != CUSPARSE_STATUS_SUCCESS)
    core::note_failed_release("cuSPARSELt", "destroy", cusparseLtGetErrorString(status));
}

SparseLtTypes sparselt_types(Precision p) {
  switch (p) {
    case Precision::bf16:
      return {Element::bf16, Element::bf16};
    case Precision::fp16:
      return {Element::f16, Element::f16};
    case Precision::int8:
      return {Element::i8, Element::i32};
    case Precision::fp8_e4m3:
      return {Element::e4m3, Element::f32};
    default:
      throw std::logic_error("cuSPARSELt was asked for a precision that it has not");
  }
}

std::string cusparselt_refusal(const Problem& p) {
  const auto& s = std::get<SparseShape>(p.shape);
  if (s.format != SparseFormat::two_of_four)
    return fmt::format("sparse products in {} on a GPU are cuSPARSELt's, which multiplies 2:4 alone",
                       name(p.precision));
  // Of bf16, fp16 and int8 those that PyTorch has for cuSPARSELt (torch/sparse/semi_structured.py); fp8 as int8.
  const std::size_t dense = 16 / core::size_of(sparselt_types(p.precision).operand), sparse = 2 * dense;
  if (s.m % sparse != 0 || s.k % sparse != 0 || s.n % dense != 0)
    return fmt::format("cuSPARSELt in {} takes m and k that are multiples of {}, and n of {}: not {}, {} and {}",
                       name(p.precision), sparse, dense, s.m, s.k, s.n);
  return capability_refusal(p.precision);
}

SparseLtProduct::SparseLtProduct(const SparseShape& s, Precision precision, runtime::Device& device)
    : s_(s), types_(sparselt_types(precision)), device_(device) {
  static_cast<runtime::CudaDevice&>(device).select();
  library_.make("cusparseLtInit", [](cusparseLtHandle_t* to) { return cusparseLtInit(to); });
  describe();
  choose();
  check_cusparselt(
      cusparseLtSpMMACompressedSize(library_.get(), plan_.get(), &compressed_bytes_, &compression_scratch_bytes_),
      "cusparseLtSpMMACompressedSize");
  reserve_workspace();
}

void SparseLtProduct::describe_dense(Matrix& matrix, std::size_t rows, std::size_t columns, Element element) const {
  matrix.make("cusparseLtDenseDescriptorInit", [&](cusparseLtMatDescriptor_t* to) {
    return cusparseLtDenseDescriptorInit(library_.get(), to, count_of(rows), count_of(columns), count_of(columns),
                                         operand_alignment, cuda_type(element), row_major);
  });
}

void SparseLtProduct::describe() {
  a_.make("cusparseLtStructuredDescriptorInit", [&](cusparseLtMatDescriptor_t* to) {
    return cusparseLtStructuredDescriptorInit(library_.get(), to, count_of(s_.m), count_of(s_.k), count_of(s_.k),
                                              operand_alignment, cuda_type(types_.operand), row_major,
                                              CUSPARSELT_SPARSITY_50_PERCENT);
  });
  const bool is_transposed = types_.is_b_transposed();
  describe_dense(b_, is_transposed ? s_.n : s_.k, is_transposed ? s_.k : s_.n, types_.operand);
  describe_dense(c_, s_.m, s_.n, types_.result);
  check_cusparselt(
      cusparseLtMatmulDescriptorInit(library_.get(), &description_, CUSPARSE_OPERATION_NON_TRANSPOSE,
                                     is_transposed ? CUSPARSE_OPERATION_TRANSPOSE : CUSPARSE_OPERATION_NON_TRANSPOSE,
                                     a_.get(), b_.get(), c_.get(), c_.get(),
                                     types_.result == Element::i32 ? CUSPARSE_COMPUTE_32I : CUSPARSE_COMPUTE_32F),
      "cusparseLtMatmulDescriptorInit");
}

void SparseLtProduct::choose() {
  selection_.make("cusparseLtMatmulAlgSelectionInit", [&](cusparseLtMatmulAlgSelection_t* to) {
    return cusparseLtMatmulAlgSelectionInit(library_.get(), to, &description_, CUSPARSELT_MATMUL_ALG_DEFAULT);
  });
  plan_.make("cusparseLtMatmulPlanInit", [&](cusparseLtMatmulPlan_t* to) {
    return cusparseLtMatmulPlanInit(library_.get(), to, &description_, selection_.get());
  });
}

void SparseLtProduct::reserve_workspace() {
  std::size_t bytes = 0;
  check_cusparselt(cusparseLtMatmulGetWorkspace(library_.get(), plan_.get(), &bytes), "cusparseLtMatmulGetWorkspace");
  workspace_ = device_.allocate(Element::i8, bytes);
}

void SparseLtProduct::check_pruned(const runtime::ConstBuffer& dense, const runtime::Buffer& found,
                                   cudaStream_t stream) const {
  require_elements("2:4: dense a in bytes", dense.bytes(), s_.m * s_.k * core::size_of(types_.operand));
  require_elements("2:4: found in bytes", found.bytes(), sizeof(int));
  check_cusparselt(cusparseLtSpMMAPruneCheck(library_.get(), &description_, dense.device().device_address(),
                                             reinterpret_cast<int*>(found.device().device_address()), stream),
                   "cusparseLtSpMMAPruneCheck");
}

void SparseLtProduct::compress(const runtime::ConstBuffer& dense, const runtime::Buffer& compressed,
                               const runtime::Buffer& scratch, cudaStream_t stream) const {
  require_elements("2:4: dense a in bytes", dense.bytes(), s_.m * s_.k * core::size_of(types_.operand));
  require_elements("2:4: compressed a in bytes", compressed.bytes(), compressed_bytes_);
  require_elements("2:4: scratch in bytes", scratch.bytes(), compression_scratch_bytes_);
  check_cusparselt(
      cusparseLtSpMMACompress(library_.get(), plan_.get(), dense.device().device_address(),
                              compressed.device().device_address(), scratch.device().device_address(), stream),
      "cusparseLtSpMMACompress");
}

void SparseLtProduct::require_operands(const runtime::ConstBuffer& a, const runtime::ConstBuffer& b,
                                       const runtime::Buffer& c) const {
  require_elements("2:4 product: a in bytes", a.bytes(), compressed_bytes_);
  require_elements("2:4 product: b in bytes", b.bytes(), s_.k * s_.n * core::size_of(types_.operand));
  require_elements("2:4 product: c in bytes", c.bytes(), s_.m * s_.n * core::size_of(types_.result));
}

void SparseLtProduct::multiply(const runtime::ConstBuffer& a, const runtime::ConstBuffer& b, const runtime::Buffer& c,
                               cudaStream_t stream) {
  require_operands(a, b, c);
  std::byte* const to = c.device().device_address();
  check_cusparselt(cusparseLtMatmul(library_.get(), plan_.get(), &scale_of_product, a.device().device_address(),
                                    b.device().device_address(), &scale_of_old, to, to,
                                    workspace_.buffer.device().device_address(), &stream, 1),
                   "cusparseLtMatmul");
}

/// Without a workspace, as NVIDIA's sample has it: how large one is to be is known when an algorithm is chosen.
void SparseLtProduct::search(const runtime::ConstBuffer& a, const runtime::ConstBuffer& b, const runtime::Buffer& c,
                             cudaStream_t stream) {
  require_operands(a, b, c);
  std::byte* const to = c.device().device_address();
  check_cusparselt(cusparseLtMatmulSearch(library_.get(), plan_.get(), &scale_of_product, a.device().device_address(),
                                          b.device().device_address(), &scale_of_old, to, to, nullptr, &stream, 1),
                   "cusparseLtMatmulSearch");
  runtime::check_cuda(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
  reserve_workspace();
}

std::string SparseLtProduct::algorithm() const {
  const auto number = [this](cusparseLtMatmulAlgAttribute_t which) {
    int value = 0;
    check_cusparselt(cusparseLtMatmulAlgGetAttribute(library_.get(), selection_.get(), which, &value, sizeof value),
                     "cusparseLtMatmulAlgGetAttribute");
    return value;
  };
  return fmt::format("algorithm {}, split-k {}, mode {}", number(CUSPARSELT_MATMUL_ALG_CONFIG_ID),
                     number(CUSPARSELT_MATMUL_SPLIT_K), number(CUSPARSELT_MATMUL_SPLIT_K_MODE));
}

}  // namespace gradmeter::kernels::cuda
