// SPDX-License-Identifier: Apache-2.0
// C = A·B with an A of format 2:4 (SparseFormat) on a GPU by cuSPARSELt, with one plan for all matrices of a shape. A
// and C are row-major.
#pragma once
#include <cusparseLt.h>

#include <cstddef>
#include <source_location>
#include <string>

#include "core/element.hpp"
#include "kernels/problems/problem.hpp"
#include "runtime/device.hpp"

namespace gradmeter::kernels::cuda {

/// The reason why the library does not take the problem on the current device; empty: it does.
std::string cusparselt_refusal(const Problem&);

/// The element types of A and B (operand) and of C (result).
struct SparseLtTypes {
  core::Element operand, result;
  /// The library wants k contiguous in 8-bit A and B, so such a B is stored as [n x k]; all others as [k x n].
  bool is_b_transposed() const { return core::size_of(operand) == 1; }
};
/// The types for bf16, fp16, int8 (results in int32) and fp8-e4m3 (results in fp32). Errors: std::logic_error for other
/// precisions.
SparseLtTypes sparselt_types(Precision);

/// Throws if a call failed. Errors: BackendError with the library's own text and the caller's file and line.
void check_cusparselt(cusparseStatus_t, const char* call, std::source_location = std::source_location::current());

/// Reports a destroy call that failed, since destructors cannot throw (core::note_failed_release).
void release_cusparselt(cusparseStatus_t) noexcept;

/// Owns one of the library's structures. The structures point to one another, so they must not move.
template <class T, cusparseStatus_t (*destroy)(const T*)>
class SparseLtObject {
 public:
  SparseLtObject() = default;
  SparseLtObject(const SparseLtObject&) = delete;
  SparseLtObject& operator=(const SparseLtObject&) = delete;
  ~SparseLtObject() {
    if (is_made_) release_cusparselt(destroy(&value_));
  }
  /// Calls make(address of the structure), which returns the library's status. `call` names the library's function in
  /// errors.
  template <class Make>
  void make(const char* call, const Make& make, std::source_location where = std::source_location::current()) {
    check_cusparselt(make(&value_), call, where);
    is_made_ = true;
  }
  T* get() { return &value_; }
  const T* get() const { return &value_; }

 private:
  T value_{};
  bool is_made_ = false;
};

/// A product for all matrices of one shape and precision. One thread at a time may use it. All calls share one
/// workspace, so all of them must go into one stream.
class SparseLtProduct {
 public:
  /// Takes the algorithm that the library estimates to be the fastest. Errors: BackendError when the library has none
  /// for the shape, or fails.
  SparseLtProduct(const SparseShape&, Precision, runtime::Device&);

  std::size_t compressed_bytes() const { return compressed_bytes_; }
  std::size_t compression_scratch_bytes() const { return compression_scratch_bytes_; }
  std::size_t workspace_bytes() const { return workspace_.buffer.bytes(); }

  /// Queues a check of the dense A [m x k]. `violation`, an int in device memory, becomes 0 if A has format 2:4, else
  /// another number.
  void check_pruned(const runtime::ConstBuffer& dense, const runtime::Buffer& violation, cudaStream_t) const;
  /// Queues the conversion of a dense A of format 2:4 to the compressed form that `multiply` reads. `compressed` has
  /// compressed_bytes(), `scratch` compression_scratch_bytes().
  void compress(const runtime::ConstBuffer& dense, const runtime::Buffer& compressed, const runtime::Buffer& scratch,
                cudaStream_t) const;
  /// Queues C = A·B, where A is compressed. Errors: std::invalid_argument for buffers of the wrong length; BackendError
  /// when the library fails.
  void multiply(const runtime::ConstBuffer& a, const runtime::ConstBuffer& b, const runtime::Buffer& c, cudaStream_t);
  /// Lets the library time all of its algorithms on these operands, and keeps the fastest. Overwrites C, and waits for
  /// the stream.
  void search(const runtime::ConstBuffer& a, const runtime::ConstBuffer& b, const runtime::Buffer& c, cudaStream_t);

  /// "algorithm 3, split-k 1, mode 1": the library's own numbers.
  std::string algorithm() const;

 private:
  using Library = SparseLtObject<cusparseLtHandle_t, cusparseLtDestroy>;
  using Matrix = SparseLtObject<cusparseLtMatDescriptor_t, cusparseLtMatDescriptorDestroy>;
  using Selection = SparseLtObject<cusparseLtMatmulAlgSelection_t, cusparseLtMatmulAlgSelectionDestroy>;
  using Plan = SparseLtObject<cusparseLtMatmulPlan_t, cusparseLtMatmulPlanDestroy>;
  void describe_dense(Matrix&, std::size_t rows, std::size_t columns, core::Element) const;
  void describe();
  void choose();
  void reserve_workspace();
  void require_operands(const runtime::ConstBuffer& a, const runtime::ConstBuffer& b, const runtime::Buffer& c) const;

  SparseShape shape_;
  SparseLtTypes types_;
  runtime::Device& device_;
  Library library_;
  Matrix a_, b_, c_;
  cusparseLtMatmulDescriptor_t description_{};  // has nothing to destroy
  Selection selection_;
  Plan plan_;
  std::size_t compressed_bytes_ = 0, compression_scratch_bytes_ = 0;
  runtime::OwnedBuffer workspace_;
};

}  // namespace gradmeter::kernels::cuda
