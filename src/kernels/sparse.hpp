// C = A·B with a sparse A (weights of which most have been pruned) and dense B and C: fp32, all row-major.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/aligned.hpp"
#include "kernels/problems/problem.hpp"

namespace gradmeter::kernels {

/// csr and 2:4: a unit is one row, and an entry one number. blocked: a unit is `block_rows` rows that share their
/// pattern, stored as blocks of block_rows x 1 (BCSR), with zeros below the last row. Unit u holds the entries
/// starts[u] … starts[u + 1], in the order of their columns; entry e has values[e · height() …] in column
/// columns_of[e].
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

/// Values are Gaussian. csr, blocked: each entry is kept by itself with probability 1 - sparsity, so rows may be empty.
/// 2:4: of each four neighbours two are kept, any two alike.
/// Cost: O(entries kept). Errors: std::invalid_argument when sparsity is outside [0, 1] or columns above 2^31 - 1; of
/// 2:4 also when sparsity is not 0.5 or columns are no multiple of 4.
SparseMatrix random_sparse(std::size_t rows, std::size_t columns, double sparsity, SparseFormat, std::uint64_t seed);
/// Of the same matrix: [rows x columns], row-major.
std::vector<float> to_dense(const SparseMatrix&);

/// C = A·B. Shape: b [a.columns x n], c [a.rows x n]; any n, 0 too. On compute_threads() threads, each with rows of its
/// own. Sums are kept in fp32, up to four for each element, fused multiply-adds where the processor has them: bits
/// depend on the instruction set, not on the number of threads.
/// Cost: 2·entries·n FLOP; A is read once for each 64 columns of B (lanes of 512 bits) and B's part stays in a cache.
/// Errors: std::invalid_argument on buffers of the wrong length.
void sparse_multiply(const SparseMatrix& a, std::span<const float> b, std::size_t n, std::span<float> c);

}  // namespace gradmeter::kernels
