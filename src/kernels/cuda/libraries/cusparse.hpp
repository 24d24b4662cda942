// C = A·B with a sparse A (kernels/sparse.hpp) on a GPU by cuSPARSE: fp32, csr, all row-major.
#pragma once
#include <cusparse.h>

#include <string>

#include "kernels/sparse.hpp"
#include "runtime/device.hpp"
#include "runtime/handle.hpp"

namespace gradmeter::kernels::cuda {

/// Empty: the library takes it.
std::string cusparse_refusal(const SparseShape&);

/// For destructors: notes an error that cannot be thrown.
void release_cusparse(cusparseStatus_t) noexcept;

template <class T, class Destroyed, cusparseStatus_t (*destroy)(Destroyed)>
struct CusparseTraits {
  using type = T;
  static type null() noexcept { return nullptr; }
  static void free(type handle) noexcept { release_cusparse(destroy(handle)); }
};

class CusparseProduct {
 public:
  /// Copies A to the device. Errors: std::invalid_argument when it is not csr or has 2^31 entries or more;
  /// BackendError.
  CusparseProduct(const SparseMatrix& a, std::size_t n, runtime::Device&);

  /// Queued on the stream; for one thread at a time. The order of sums is the library's, the same each time.
  /// Shape:  b [a.columns x n], c [a.rows x n].
  /// Errors: std::invalid_argument on buffers of the wrong length; BackendError when the library fails.
  void multiply(const runtime::ConstBuffer& b, const runtime::Buffer& c, cudaStream_t);
  std::size_t scratch_bytes() const { return workspace_.buffer.bytes(); }  ///< beside A
  std::string implementation() const { return "cusparse csr algorithm 3"; }

 private:
  using Library = runtime::Handle<CusparseTraits<cusparseHandle_t, cusparseHandle_t, cusparseDestroy>>;
  using Sparse =
      runtime::Handle<CusparseTraits<cusparseConstSpMatDescr_t, cusparseConstSpMatDescr_t, cusparseDestroySpMat>>;
  using ConstDense =
      runtime::Handle<CusparseTraits<cusparseConstDnMatDescr_t, cusparseConstDnMatDescr_t, cusparseDestroyDnMat>>;
  using Dense = runtime::Handle<CusparseTraits<cusparseDnMatDescr_t, cusparseConstDnMatDescr_t, cusparseDestroyDnMat>>;
  ConstDense of_b(const std::byte*) const;
  Dense of_c(std::byte*) const;
  void reserve_workspace(runtime::Device&);

  std::size_t rows_, columns_, n_;
  Library library_;
  runtime::OwnedBuffer starts_, columns_of_, values_, workspace_;
  Sparse a_;
};

}  // namespace gradmeter::kernels::cuda
