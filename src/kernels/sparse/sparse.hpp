// SPDX-License-Identifier: Apache-2.0
// C = A·B with a sparse A (weights most of which have been pruned) and dense B and C, all row-major.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/element.hpp"
#include "kernels/cases/kernel_case.hpp"
#include "kernels/host/memory.hpp"
#include "kernels/problems/problem.hpp"

namespace gradmeter::kernels {

/// A sparse matrix in fp32. It is cut into units, which consist of entries. csr and 2:4: a unit is a row, and an entry
/// is one number. blocked (BCSR): a unit is `block_rows` rows that have their entries in the same columns, and an entry
/// is a block of block_rows x 1 numbers; numbers below the matrix's last row are zero. Unit u holds the entries from
/// starts[u] to starts[u + 1] - 1, in the order of their columns. Entry e is in column columns_of[e], and its height()
/// numbers begin at values[e · height()].
struct SparseMatrix {
  static constexpr std::size_t block_rows = 16;
  std::size_t rows = 0, columns = 0;
  SparseFormat format = SparseFormat::csr;
  std::vector<std::size_t> starts = {};
  std::vector<std::int32_t> columns_of = {};
  AlignedVector<float> values = {};

  std::size_t height() const { return format == SparseFormat::blocked ? block_rows : 1; }
  std::size_t units() const { return starts.size() - 1; }
  std::size_t bytes() const {
    return starts.size() * sizeof(starts[0]) + columns_of.size() * sizeof(columns_of[0]) +
           values.size() * sizeof(float);
  }
};

/// Draws a matrix with Gaussian values. csr, blocked: each entry is kept with probability 1 - sparsity, independently,
/// so rows may be empty. 2:4: two of each four neighbours are kept, any two with equal probability. Cost: O(entries
/// kept).
/// Errors: std::invalid_argument when sparsity is outside [0, 1] or columns above 2^31 - 1; for 2:4 also when sparsity
/// is not 0.5 or columns are no multiple of 4.
SparseMatrix random_sparse(std::size_t rows, std::size_t columns, double sparsity, SparseFormat, std::uint64_t seed);
/// The same matrix in dense form [rows x columns], row-major.
std::vector<float> to_dense(const SparseMatrix&);

/// C = A·B in fp32. Shape: b [a.columns x n], c [a.rows x n]; n may be 0. Each of the compute_threads() threads
/// computes rows of its own. An element is summed in several partial sums, with fused multiply-adds if the processor
/// has them, so bits depend on the instruction set, but not on the number of threads. Cost: 2·n FLOP for each number of
/// A; with 512-bit vectors, A is read once for each 64 columns of B (blocked: 32), and those columns stay in a cache.
/// Errors: std::invalid_argument for buffers of the wrong length.
void sparse_multiply(const SparseMatrix& a, std::span<const float> b, std::size_t n, std::span<float> c);

// The operands and checks that the kernel cases of sparse products on all devices share.

/// The storage type of A and B. Errors: std::logic_error for a precision that no sparse product has.
core::Element sparse_element(Precision);

/// A and B. Each of their numbers is exactly a number of the precision's storage type.
struct SparseOperands {
  SparseMatrix a;
  AlignedVector<float> b;
};
/// Draws Gaussian A and B; for int8 uniform whole numbers. Equal seeds give equal operands.
SparseOperands random_sparse_operands(const SparseShape&, Precision, std::uint64_t seed);

/// Reads element i of C [m x n], row-major.
using ReadProductElement = std::function<double(std::size_t i)>;
/// Checks rows of a result C against float64 sums of the operands. KernelCase::finish_check on all devices uses it.
KernelCaseCheck checked_product(const SparseShape&, Precision, const SparseOperands&, const ReadProductElement& c,
                                const CheckedCall&);

}  // namespace gradmeter::kernels

namespace gradmeter::kernels::cuda {

// The kernel case of products with a sparse matrix by cuSPARSE.

std::string cusparse_case_refusal(const Problem&);
std::unique_ptr<KernelCase> make_cusparse_case(const Problem&, const KernelCaseOptions&);

// The kernel cases of sparse products in format 2:4 by cuSPARSELt.

std::string cusparselt_case_refusal(const Problem&);
/// Bytes of A (compressed), B and C (dense).
std::size_t cusparselt_case_bytes(const Problem&);
std::unique_ptr<KernelCase> make_cusparselt_case(const Problem&, const KernelCaseOptions&);

}  // namespace gradmeter::kernels::cuda
