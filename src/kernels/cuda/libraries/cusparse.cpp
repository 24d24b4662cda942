#include "kernels/cuda/libraries/cusparse.hpp"

#include <limits>
#include <source_location>
#include <stdexcept>
#include <vector>

#include "core/error.hpp"
#include "kernels/problems/shape.hpp"
#include "runtime/cuda/device.hpp"

namespace gradmeter::kernels::cuda {
namespace {

// Gives the same bits each time, which the faster ones do not promise.
constexpr cusparseSpMMAlg_t algorithm = CUSPARSE_SPMM_CSR_ALG3;
constexpr float product_factor = 1, old_factor = 0;  // C = product_factor · A·B + old_factor · C
constexpr cusparseOperation_t as_it_is = CUSPARSE_OPERATION_NON_TRANSPOSE;

void check_cusparse(cusparseStatus_t status, const char* call,
                    std::source_location where = std::source_location::current()) {
  if (status != CUSPARSE_STATUS_SUCCESS)
    throw core::BackendError("cuSPARSE", call, cusparseGetErrorString(status), where);
}

/// A copy on the device.
template <class T>
runtime::OwnedBuffer uploaded(const T* values, std::size_t count, runtime::Device& device) {
  auto to = device.allocate(core::element_of<T>, count);
  if (count > 0)
    runtime::check_cuda(
        cudaMemcpy(to.buffer.device().device_address(), values, count * sizeof(T), cudaMemcpyHostToDevice),
        "cudaMemcpy");
  return to;
}

/// Of 32 bits.
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
  check_cusparse(cusparseCreate(library_.receive()), "cusparseCreate");
  starts_ = uploaded(starts.data(), starts.size(), device);
  columns_of_ = uploaded(a.columns_of.data(), a.columns_of.size(), device);
  values_ = uploaded(a.values.data(), a.values.size(), device);
  check_cusparse(cusparseCreateConstCsr(a_.receive(), extent(rows_), extent(columns_), extent(a.values.size()),
                                        address(starts_), address(columns_of_), address(values_), CUSPARSE_INDEX_32I,
                                        CUSPARSE_INDEX_32I, CUSPARSE_INDEX_BASE_ZERO, CUDA_R_32F),
                 "cusparseCreateConstCsr");
  reserve_workspace(device);
}

CusparseProduct::ConstDense CusparseProduct::of_b(const std::byte* b) const {
  ConstDense d;
  check_cusparse(cusparseCreateConstDnMat(d.receive(), extent(columns_), extent(n_), extent(n_), b, CUDA_R_32F,
                                          CUSPARSE_ORDER_ROW),
                 "cusparseCreateConstDnMat");
  return d;
}
CusparseProduct::Dense CusparseProduct::of_c(std::byte* c) const {
  Dense d;
  check_cusparse(
      cusparseCreateDnMat(d.receive(), extent(rows_), extent(n_), extent(n_), c, CUDA_R_32F, CUSPARSE_ORDER_ROW),
      "cusparseCreateDnMat");
  return d;
}

/// The library reads no element for this, but wants addresses.
void CusparseProduct::reserve_workspace(runtime::Device& device) {
  if (n_ == 0) return;
  std::size_t bytes = 0;
  const ConstDense b = of_b(address(values_));
  const Dense c = of_c(address(values_));
  check_cusparse(cusparseSpMM_bufferSize(library_.get(), as_it_is, as_it_is, &product_factor, a_.get(), b.get(),
                                         &old_factor, c.get(), CUDA_R_32F, algorithm, &bytes),
                 "cusparseSpMM_bufferSize");
  workspace_ = device.allocate(core::Element::i8, bytes);
}

void CusparseProduct::multiply(const runtime::ConstBuffer& b, const runtime::Buffer& c, cudaStream_t stream) {
  require_elements("sparse product: b", b.count(), columns_ * n_);
  require_elements("sparse product: c", c.count(), rows_ * n_);
  if (n_ == 0) return;
  const ConstDense right = of_b(b.device().device_address());
  const Dense result = of_c(c.device().device_address());
  check_cusparse(cusparseSetStream(library_.get(), stream), "cusparseSetStream");
  check_cusparse(cusparseSpMM(library_.get(), as_it_is, as_it_is, &product_factor, a_.get(), right.get(), &old_factor,
                              result.get(), CUDA_R_32F, algorithm, address(workspace_)),
                 "cusparseSpMM");
}

}  // namespace gradmeter::kernels::cuda
