// SPDX-License-Identifier: Apache-2.0
#include "kernels/sparse/cusparse.hpp"

#include <limits>
#include <source_location>
#include <span>
#include <stdexcept>
#include <vector>

#include "core/error.hpp"
#include "kernels/cases/kernel_case.hpp"
#include "kernels/host/memory.hpp"
#include "kernels/sparse/sparse.hpp"
#include "runtime/cuda/device.hpp"
#include "runtime/cuda/stream.hpp"
#include "runtime/device.hpp"

namespace gradmeter::kernels::cuda {
namespace {

// This algorithm gives the same bits each time, which the faster ones do not promise.
constexpr cusparseSpMMAlg_t algorithm = CUSPARSE_SPMM_CSR_ALG3;
constexpr float product_factor = 1, old_factor = 0;  // C = product_factor · A·B + old_factor · C
constexpr cusparseOperation_t as_it_is = CUSPARSE_OPERATION_NON_TRANSPOSE;

void check_cusparse(cusparseStatus_t status, const char* call,
                    std::source_location where = std::source_location::current()) {
  if (status != CUSPARSE_STATUS_SUCCESS)
    throw core::BackendError("cuSPARSE", call, cusparseGetErrorString(status), where);
}

/// Copies numbers to the device.
template <class T>
runtime::OwnedBuffer uploaded(const T* values, std::size_t count, runtime::Device& device) {
  auto to = device.allocate(core::element_of<T>, count);
  runtime::upload(to.buffer.device(), std::as_bytes(std::span(values, count)));
  return to;
}

/// SparseMatrix::starts in 32 bits, as the library takes them. Errors: std::invalid_argument when A is not csr or too
/// large.
std::vector<std::int32_t> checked_starts(const SparseMatrix& a) {
  if (a.format != SparseFormat::csr) throw std::invalid_argument("cuSPARSE has no blocks of this shape");
  if (a.values.size() > static_cast<std::size_t>(std::numeric_limits<std::int32_t>::max()))
    throw std::invalid_argument("a sparse matrix of 2^31 entries or more");
  std::vector<std::int32_t> starts;
  for (const std::size_t s : a.starts) starts.push_back(static_cast<std::int32_t>(s));
  return starts;
}

std::byte* address(const runtime::OwnedBuffer& b) { return b.buffer.device().device_address(); }
std::int64_t extent(std::size_t n) { return static_cast<std::int64_t>(n); }

}  // namespace

void release_cusparse(cusparseStatus_t status) noexcept {
  if (status != CUSPARSE_STATUS_SUCCESS)
    core::note_failed_release("cuSPARSE", "destroy", cusparseGetErrorString(status));
}

std::string cusparse_refusal(const SparseShape& s) {
  if (s.format == SparseFormat::two_of_four)
    return "cuSPARSE has no 2:4, and cuSPARSELt none in fp32: its products of fp32 are tf32's";
  return s.format == SparseFormat::csr ? "" : "cuSPARSE multiplies no blocks of 16 x 1: its blocks are square";
}

CusparseProduct::CusparseProduct(const SparseMatrix& a, std::size_t n, runtime::Device& device)
    : rows_(a.rows), columns_(a.columns), n_(n) {
  static_cast<runtime::CudaDevice&>(device).select();
  const auto starts = checked_starts(a);
  check_cusparse(cusparseCreate(library_.out_address()), "cusparseCreate");
  starts_ = uploaded(starts.data(), starts.size(), device);
  columns_of_ = uploaded(a.columns_of.data(), a.columns_of.size(), device);
  values_ = uploaded(a.values.data(), a.values.size(), device);
  check_cusparse(cusparseCreateConstCsr(a_.out_address(), extent(rows_), extent(columns_), extent(a.values.size()),
                                        address(starts_), address(columns_of_), address(values_), CUSPARSE_INDEX_32I,
                                        CUSPARSE_INDEX_32I, CUSPARSE_INDEX_BASE_ZERO, CUDA_R_32F),
                 "cusparseCreateConstCsr");
  reserve_workspace(device);
}

CusparseProduct::ConstDense CusparseProduct::describe_b(const std::byte* b) const {
  ConstDense d;
  check_cusparse(cusparseCreateConstDnMat(d.out_address(), extent(columns_), extent(n_), extent(n_), b, CUDA_R_32F,
                                          CUSPARSE_ORDER_ROW),
                 "cusparseCreateConstDnMat");
  return d;
}
CusparseProduct::Dense CusparseProduct::describe_c(std::byte* c) const {
  Dense d;
  check_cusparse(
      cusparseCreateDnMat(d.out_address(), extent(rows_), extent(n_), extent(n_), c, CUDA_R_32F, CUSPARSE_ORDER_ROW),
      "cusparseCreateDnMat");
  return d;
}

/// Allocates the workspace that the library asks for. For this the library reads no element of b and c, but wants
/// addresses, so it gets that of the values of A.
void CusparseProduct::reserve_workspace(runtime::Device& device) {
  if (n_ == 0) return;
  std::size_t bytes = 0;
  const ConstDense b = describe_b(address(values_));
  const Dense c = describe_c(address(values_));
  check_cusparse(cusparseSpMM_bufferSize(library_.get(), as_it_is, as_it_is, &product_factor, a_.get(), b.get(),
                                         &old_factor, c.get(), CUDA_R_32F, algorithm, &bytes),
                 "cusparseSpMM_bufferSize");
  workspace_ = device.allocate(core::Element::i8, bytes);
}

void CusparseProduct::multiply(const runtime::ConstBuffer& b, const runtime::Buffer& c, cudaStream_t stream) {
  require_elements("sparse product: b", b.count(), columns_ * n_);
  require_elements("sparse product: c", c.count(), rows_ * n_);
  if (n_ == 0) return;
  const ConstDense right = describe_b(b.device().device_address());
  const Dense result = describe_c(c.device().device_address());
  check_cusparse(cusparseSetStream(library_.get(), stream), "cusparseSetStream");
  check_cusparse(cusparseSpMM(library_.get(), as_it_is, as_it_is, &product_factor, a_.get(), right.get(), &old_factor,
                              result.get(), CUDA_R_32F, algorithm, address(workspace_)),
                 "cusparseSpMM");
}

namespace {

class CusparseCase final : public KernelCase {
  struct Operands {
    CusparseProduct product;
    runtime::OwnedBuffer b, c;
  };

 public:
  CusparseCase(const SparseShape& s, const KernelCaseOptions& o)
      : shape_(s), seed_(o.seed), queue_(o.device->make_queue()) {
    for (std::size_t i = 0; i < o.sets; ++i) upload(drawn(i), *o.device);
  }

  void run(std::size_t set) override {
    queue_->submit("kernel", {}, [this, set] {
      Operands& x = sets_[set];
      x.product.multiply(x.b.buffer, x.c.buffer, gpu::stream());
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
    AlignedVector<float> result(shape_.m * shape_.n);
    queue_->copy("download", sets_[call.set].c.buffer, result);
    queue_->synchronise();
    const auto c = [&](std::size_t i) { return static_cast<double>(result[i]); };
    return checked_product(shape_, Precision::fp32, drawn(call.set), c, call);
  }

  std::string implementation() const override { return sets_[0].product.implementation(); }

 private:
  SparseOperands drawn(std::size_t set) const {
    return random_sparse_operands(shape_, Precision::fp32, seed_ + 3 * set);
  }
  void upload(const SparseOperands& from, runtime::Device& device) {
    Operands& x = sets_.emplace_back(Operands{CusparseProduct(from.a, shape_.n, device),
                                              device.allocate(core::Element::f32, from.b.size()),
                                              device.allocate(core::Element::f32, shape_.m * shape_.n)});
    queue_->copy("upload", from.b, x.b.buffer);
    queue_->synchronise();
  }

  SparseShape shape_;
  std::uint64_t seed_;
  std::vector<Operands> sets_;
  std::unique_ptr<runtime::Queue> queue_;  // destroyed first, since its destructor waits for calls under way
};

}  // namespace

std::string cusparse_case_refusal(const Problem& p) {
  const std::string why = sparse_case_refusal(p);
  return why.empty() ? cusparse_refusal(std::get<SparseShape>(p.shape)) : why;
}

std::unique_ptr<KernelCase> make_cusparse_case(const Problem& p, const KernelCaseOptions& o) {
  return std::make_unique<CusparseCase>(std::get<SparseShape>(p.shape), o);
}

}  // namespace gradmeter::kernels::cuda
