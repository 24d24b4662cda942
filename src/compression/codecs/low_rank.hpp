// PowerSGD's arithmetic: a gradient as a matrix, and two thin factors of it that ranks can add up. One step is
//   multiply; all-reduce P; orthonormalise; multiply_transposed; all-reduce Q; reconstruct
// with Q kept for the next step, and error feedback around it. The collectives are in allreduce/compressed.
#pragma once
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>

#include "core/host_device.hpp"
#include "core/name.hpp"

namespace gradmeter::compression {

/// A matrix by rows, as many as `count` elements need: the last row may be short, and its missing elements are 0 and
/// not stored. P is [rows x rank] by rows. Q is [columns x rank] stored transposed: each of its rank columns is
/// contiguous, `columns` numbers long.
struct Matrix {
  std::size_t rows = 0, columns = 0, count = 0;
  std::size_t p_size(std::size_t rank) const { return rows * rank; }
  std::size_t q_size(std::size_t rank) const { return columns * rank; }
};
/// For a tensor without a shape: as nearly square as possible, ceil(sqrt(count)) columns, which makes the factors
/// smallest.
Matrix square_matrix(std::size_t count);

/// Are the factors at most half of the tensor: 2·rank·(m + n) <= m·n? Others go dense.
bool low_rank_pays(std::size_t rows, std::size_t columns, std::size_t rank);
/// Why this matrix cannot have so high a rank, and what it may have; empty: it can.
std::string low_rank_refusal(const Matrix&, std::size_t rank);

/// Q for the first step: independent standard normal numbers, a function of (seed, tensor) alone; as in the paper not
/// orthonormal.
void draw_first_q(const Matrix&, std::size_t rank, std::uint64_t seed, std::uint32_t tensor, std::span<float> q);

/// P = M·Q. m [count]; one read of it. Cost: 2·rank flops an element. Equal bits on every instruction set: each dot
/// product runs in 16 partial sums, then pairwise.
void multiply(const Matrix&, std::size_t rank, std::span<const float> m, std::span<const float> q, std::span<float> p);
/// Q = Mᵀ·P; the same cost. Sums run over rows in order, on every instruction set.
void multiply_transposed(const Matrix&, std::size_t rank, std::span<const float> m, std::span<const float> p,
                         std::span<float> q);
/// out = P·Qᵀ [count]; products added in order of the columns of P, so equal bits for equal factors, everywhere.
void reconstruct(const Matrix&, std::size_t rank, std::span<const float> p, std::span<const float> q,
                 std::span<float> out);
/// What a column is multiplied by whose length was `before` and is `length` without those before it.
GRADMETER_HOST_DEVICE inline double column_factor(double before, double length) {
  // Below this share of its length, a column is only the rounding errors in fp32 of a dependent one.
  constexpr double dependent = 1e-5;
  // Not so where either is NaN; and an infinite length must not leave zeros, but NaN.
  if (length <= dependent * before && std::isfinite(before)) return 0;
  return std::isfinite(length) ? 1 / length : std::numeric_limits<double>::quiet_NaN();
}
/// The columns of P become orthonormal (Gram-Schmidt, twice over, in doubles by pieces, detail/tree_sum.hpp: equal bits
/// for equal P). A column that is zero, or within 1e-5 of its length in the span of those before it, becomes zero; a
/// column with numbers that are not finite becomes NaN, and so does all that is made of it. Cost: 2·rows·rank^2
/// multiply-adds.
void orthonormalise(const Matrix&, std::size_t rank, std::span<float> p);

/// Source of all: Vogels, Karimireddy, Jaggi, NeurIPS 2019. The parameter `rank`: 1 to 1024. Errors: UsageError.
std::size_t rank_of(const core::ParsedName&);
void check_powersgd(const core::ParsedName&);

}  // namespace gradmeter::compression
