// SPDX-License-Identifier: Apache-2.0
#include "kernels/sparse/cusparselt.hpp"

#include <array>
#include <span>
#include <stdexcept>
#include <variant>
#include <vector>

#include "core/element.hpp"
#include "core/error.hpp"
#include "core/format.hpp"
#include "kernels/cases/kernel_case.hpp"
#include "kernels/cuda/library.hpp"
#include "kernels/host/memory.hpp"
#include "kernels/sparse/sparse.hpp"
#include "runtime/cuda/device.hpp"
#include "runtime/cuda/stream.hpp"
#include "runtime/device.hpp"

namespace gradmeter::kernels::cuda {
namespace {

using core::Element;

// C = scale_of_product·A·B + scale_of_old·C; the library takes floats, for sums in int32 too.
constexpr float scale_of_product = 1, scale_of_old = 0;
constexpr cusparseOrder_t row_major = CUSPARSE_ORDER_ROW;
constexpr std::uint32_t operand_alignment = 16;  // of each matrix, in bytes; each is an allocation of its own

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
  const cudaDeviceProp properties = current_device();
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
  // The minimum extents for bf16, fp16 and int8 are PyTorch's for cuSPARSELt (torch/sparse/semi_structured.py);
  // fp8 gets those of int8.
  const std::size_t dense = 16 / core::size_of(sparselt_types(p.precision).operand), sparse = 2 * dense;
  if (s.m % sparse != 0 || s.k % sparse != 0 || s.n % dense != 0)
    return fmt::format("cuSPARSELt in {} takes m and k that are multiples of {}, and n of {}: not {}, {} and {}",
                       name(p.precision), sparse, dense, s.m, s.k, s.n);
  return capability_refusal(p.precision);
}

SparseLtProduct::SparseLtProduct(const SparseShape& s, Precision precision, runtime::Device& device)
    : shape_(s), types_(sparselt_types(precision)), device_(device) {
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
    return cusparseLtStructuredDescriptorInit(library_.get(), to, count_of(shape_.m), count_of(shape_.k),
                                              count_of(shape_.k), operand_alignment, cuda_type(types_.operand),
                                              row_major, CUSPARSELT_SPARSITY_50_PERCENT);
  });
  const bool is_transposed = types_.is_b_transposed();
  describe_dense(b_, is_transposed ? shape_.n : shape_.k, is_transposed ? shape_.k : shape_.n, types_.operand);
  describe_dense(c_, shape_.m, shape_.n, types_.result);
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

void SparseLtProduct::check_pruned(const runtime::ConstBuffer& dense, const runtime::Buffer& violation,
                                   cudaStream_t stream) const {
  require_elements("2:4: dense a in bytes", dense.bytes(), shape_.m * shape_.k * core::size_of(types_.operand));
  require_elements("2:4: found in bytes", violation.bytes(), sizeof(int));
  check_cusparselt(cusparseLtSpMMAPruneCheck(library_.get(), &description_, dense.device().device_address(),
                                             reinterpret_cast<int*>(violation.device().device_address()), stream),
                   "cusparseLtSpMMAPruneCheck");
}

void SparseLtProduct::compress(const runtime::ConstBuffer& dense, const runtime::Buffer& compressed,
                               const runtime::Buffer& scratch, cudaStream_t stream) const {
  require_elements("2:4: dense a in bytes", dense.bytes(), shape_.m * shape_.k * core::size_of(types_.operand));
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
  require_elements("2:4 product: b in bytes", b.bytes(), shape_.k * shape_.n * core::size_of(types_.operand));
  require_elements("2:4 product: c in bytes", c.bytes(), shape_.m * shape_.n * core::size_of(types_.result));
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

/// Searches without a workspace, as NVIDIA's sample does, since its size is known only when an algorithm is chosen.
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

namespace {

using core::Element;

/// The stored form of a matrix, or of its transpose: its numbers in the element type.
std::vector<std::byte> stored_numbers(std::span<const float> x, Element element, std::size_t columns,
                                      bool is_transposed) {
  const std::size_t bytes = core::size_of(element), rows = x.size() / columns;
  std::vector<std::byte> out(x.size() * bytes);
  for (std::size_t i = 0; i < rows; ++i)
    for (std::size_t j = 0; j < columns; ++j)
      core::store(element, &out[(is_transposed ? j * rows + i : i * columns + j) * bytes], x[i * columns + j]);
  return out;
}

runtime::ConstBuffer buffer_of(const std::vector<std::byte>& x) {
  return runtime::ConstBuffer(Element::i8, std::span(x));
}

class CusparseltCase final : public KernelCase {
  struct Operands {
    runtime::OwnedBuffer a, b, c;
  };

 public:
  CusparseltCase(const Problem& p, const KernelCaseOptions& o)
      : shape_(std::get<SparseShape>(p.shape)),
        precision_(p.precision),
        types_(sparselt_types(p.precision)),
        seed_(o.seed),
        product_(shape_, precision_, *o.device),
        queue_(o.device->make_queue()) {
    for (std::size_t i = 0; i < o.sets; ++i) add_set(drawn(i), *o.device);
    if (o.search != AlgorithmSearch::exhaustive) return;
    const Operands& x = sets_.front();
    queue_->submit("search", {}, [&] { product_.search(x.a.buffer, x.b.buffer, x.c.buffer, gpu::stream()); });
  }

  void run(std::size_t set) override {
    queue_->submit("kernel", {}, [this, set] {
      const Operands& x = sets_[set];
      product_.multiply(x.a.buffer, x.b.buffer, x.c.buffer, gpu::stream());
    });
  }
  runtime::Queue* queue() override { return queue_.get(); }

  /// The case's matrices are prepared once for the library, so its sets keep their inputs.
  void redraw(std::size_t, std::uint64_t) override {}
  void prepare_check(const CheckedCall& call) override {
    const runtime::Buffer& c = sets_[call.set].c.buffer;
    const std::vector<std::byte> poison(c.bytes(), std::byte{0x5a});
    queue_->copy("poison", runtime::ConstBuffer(core::Element::i8, std::span(poison)), c);
    queue_->synchronise();
  }
  KernelCaseCheck finish_check(const CheckedCall& call) override {
    std::vector<std::byte> result(sets_[call.set].c.buffer.bytes());
    queue_->copy("download", sets_[call.set].c.buffer, runtime::Buffer(Element::i8, std::span(result)));
    queue_->synchronise();
    const auto c = [&](std::size_t i) { return core::load(types_.result, &result[i * core::size_of(types_.result)]); };
    return checked_product(shape_, precision_, drawn(call.set), c, call);
  }

  std::string implementation() const override { return fmt::format("cusparselt {}", product_.algorithm()); }

 private:
  SparseOperands drawn(std::size_t set) const { return random_sparse_operands(shape_, precision_, seed_ + 3 * set); }
  void add_set(const SparseOperands& from, runtime::Device& device) {
    const auto b = stored_numbers(from.b, types_.operand, shape_.n, types_.is_b_transposed());
    Operands& x =
        sets_.emplace_back(Operands{compressed(from.a, device), device.allocate(Element::i8, b.size()),
                                    device.allocate(Element::i8, shape_.m * shape_.n * core::size_of(types_.result))});
    queue_->copy("upload", buffer_of(b), x.b.buffer);
    queue_->synchronise();
  }

  runtime::OwnedBuffer compressed(const SparseMatrix& a, runtime::Device& device) {
    const auto numbers = stored_numbers(to_dense(a), types_.operand, shape_.k, false);
    const auto dense = device.allocate(Element::i8, numbers.size()), violation = device.allocate(Element::i32, 1);
    const auto scratch = device.allocate(Element::i8, product_.compression_scratch_bytes());
    auto result = device.allocate(Element::i8, product_.compressed_bytes());
    queue_->copy("upload", buffer_of(numbers), dense.buffer);
    queue_->submit("compress", {}, [&] {
      product_.check_pruned(dense.buffer, violation.buffer, gpu::stream());
      product_.compress(dense.buffer, result.buffer, scratch.buffer, gpu::stream());
    });
    std::vector<std::byte> downloaded(sizeof(int));
    queue_->copy("download", violation.buffer, runtime::Buffer(Element::i8, std::span(downloaded)));
    queue_->synchronise();
    if (core::load(Element::i32, downloaded.data()) != 0)
      throw core::BackendError("cuSPARSELt", "cusparseLtSpMMAPruneCheck", "A is not 2:4");
    return result;
  }

  SparseShape shape_;
  Precision precision_;
  SparseLtTypes types_;
  std::uint64_t seed_;
  SparseLtProduct product_;
  std::vector<Operands> sets_;
  std::unique_ptr<runtime::Queue> queue_;  // destroyed first, since its destructor waits for calls under way
};

}  // namespace

std::string cusparselt_case_refusal(const Problem& p) {
  const std::string why = sparse_case_refusal(p);
  return why.empty() ? cusparselt_refusal(p) : why;
}

std::size_t cusparselt_case_bytes(const Problem& p) {
  const auto& s = std::get<SparseShape>(p.shape);
  const SparseLtTypes t = sparselt_types(p.precision);
  const auto real = [](std::size_t n) { return static_cast<double>(n); };
  const double bytes = real(core::size_of(t.operand)), kept = real(s.m) * real(s.k) / 2;
  return whole_bytes(kept * (bytes + 0.25) + real(s.k) * real(s.n) * bytes +
                     real(s.m) * real(s.n) * real(core::size_of(t.result)));
}

std::unique_ptr<KernelCase> make_cusparselt_case(const Problem& p, const KernelCaseOptions& o) {
  return std::make_unique<CusparseltCase>(p, o);
}

}  // namespace gradmeter::kernels::cuda
