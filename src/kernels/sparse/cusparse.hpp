// SPDX-License-Identifier: Apache-2.0
// C = A·B with a sparse A (kernels/sparse/sparse.hpp) on a GPU by cuSPARSE: fp32, csr, all row-major.
#pragma once
#include <cusparse.h>

#include <string>

#include "kernels/cuda/library.hpp"
#include "kernels/sparse/sparse.hpp"
#include "runtime/device.hpp"

namespace gradmeter::kernels::cuda {

/// The reason why the library does not take the shape; empty: it does.
std::string cusparse_refusal(const SparseShape&);

/// Reports a destroy call that failed, since destructors cannot throw (core::note_failed_release).
void release_cusparse(cusparseStatus_t) noexcept;

/// A product with a fixed A. It owns a copy of A on the device.
class CusparseProduct {
 public:
  /// Copies A to the device. Errors: std::invalid_argument when A is not csr or has 2^31 entries or more; BackendError
  /// when the library fails.
  CusparseProduct(const SparseMatrix& a, std::size_t n, runtime::Device&);

  /// Queues the product on the stream; one thread at a time may call it. The library chooses the order of sums, which
  /// is the same each time. Shape: b [a.columns x n], c [a.rows x n]. Errors: std::invalid_argument for buffers of the
  /// wrong length; BackendError when the library fails.
  void multiply(const runtime::ConstBuffer& b, const runtime::Buffer& c, cudaStream_t);
  std::size_t scratch_bytes() const { return workspace_.buffer.bytes(); }  ///< not counting the copy of A
  std::string implementation() const { return "cusparse csr algorithm 3"; }

 private:
  using Library = LibraryHandle<cusparseHandle_t, cusparseDestroy, release_cusparse>;
  using Sparse = LibraryHandle<cusparseConstSpMatDescr_t, cusparseDestroySpMat, release_cusparse>;
  using ConstDense = LibraryHandle<cusparseConstDnMatDescr_t, cusparseDestroyDnMat, release_cusparse>;
  using Dense = LibraryHandle<cusparseDnMatDescr_t, cusparseDestroyDnMat, release_cusparse>;
  ConstDense describe_b(const std::byte*) const;
  Dense describe_c(std::byte*) const;
  void reserve_workspace(runtime::Device&);

  std::size_t rows_, columns_, n_;
  Library library_;
  runtime::OwnedBuffer starts_, columns_of_, values_, workspace_;
  Sparse a_;
};

}  // namespace gradmeter::kernels::cuda
