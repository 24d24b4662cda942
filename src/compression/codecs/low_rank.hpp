// SPDX-License-Identifier: Apache-2.0
// PowerSGD's arithmetic: a gradient as a matrix M, which is approximated by P·Qᵀ with two thin factors P and Q that can
// be summed over the ranks. One step is
//   multiply; all-reduce P; orthonormalise; multiply_transposed; all-reduce Q; reconstruct
// with Q kept for the next step, and error feedback around it. The collectives are in allreduce/coded.
// Source: Vogels, Karimireddy, Jaggi, NeurIPS 2019.
#pragma once
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "core/host_device.hpp"
#include "core/name.hpp"

namespace gradmeter::compression {

/// The shape of M, which is stored by rows, with as many rows as `count` elements need. The last row may be short; its
/// missing elements count as 0 and are not stored. P is [rows x rank], by rows. Q is [columns x rank] stored
/// transposed: each of its `rank` columns is contiguous and `columns` numbers long.
struct MatrixShape {
  std::size_t rows = 0, columns = 0, count = 0;
  std::size_t p_size(std::size_t rank) const { return rows * rank; }
  std::size_t q_size(std::size_t rank) const { return columns * rank; }
};
/// The matrix for a tensor without a shape. It is as nearly square as possible, with ceil(sqrt(count)) columns, because
/// the factors are then smallest.
MatrixShape square_matrix(std::size_t count);

/// True if 2·rank·(rows + columns) <= rows·columns: the factors together have at most half as many elements as the
/// matrix. Other tensors are not compressed.
bool low_rank_pays(std::size_t rows, std::size_t columns, std::size_t rank);
/// The reason why a matrix of this shape cannot have factors of this rank, and which ranks are possible; empty: this
/// rank is possible.
std::string low_rank_refusal(const MatrixShape&, std::size_t rank);

/// Q for the first step: independent standard normal numbers, which depend on (seed, tensor) alone. As in the paper, Q
/// is not orthonormal.
void draw_first_q(const MatrixShape&, std::size_t rank, std::uint64_t seed, std::uint32_t tensor, std::span<float> q);

/// P = M·Q, where x [count] holds M. Cost: one read of x, 2·rank flops an element. Bits are equal on every instruction
/// set: each dot product runs in 16 partial sums, which are then added pairwise.
void multiply(const MatrixShape&, std::size_t rank, std::span<const float> x, std::span<const float> q,
              std::span<float> p);
/// Q = Mᵀ·P, at the same cost. Sums run over the rows in order on every instruction set.
void multiply_transposed(const MatrixShape&, std::size_t rank, std::span<const float> x, std::span<const float> p,
                         std::span<float> q);
/// out = P·Qᵀ [count]. Products are added in the order of P's columns, so equal factors give equal bits on every
/// machine.
void reconstruct(const MatrixShape&, std::size_t rank, std::span<const float> p, std::span<const float> q,
                 std::span<float> out);
/// The factor that normalises a column; 0 for a column that depends on earlier ones. `before`: the column's length at
/// first. `length`: its length after its components along the earlier columns have been subtracted.
GRADMETER_HOST_DEVICE inline double column_factor(double before, double length) {
  // If no more than this share of a column's length is left, the column depends on earlier ones, and what is left is
  // fp32 rounding error.
  constexpr double dependent = 1e-5;
  // A NaN in either number does not count as dependent, and a column of infinite length must become NaN, not zeros.
  if (length <= dependent * before && std::isfinite(before)) return 0;
  return std::isfinite(length) ? 1 / length : core::quiet_nan<double>();
}
/// Makes the columns of P orthonormal by Gram-Schmidt, done twice. Sums are in doubles, in the order of
/// detail/tree_sum.hpp, so equal P gives equal bits. A column becomes zero if it is zero, or differs by less than 1e-5
/// of its length from a combination of the columns before it. A column with numbers that are not finite becomes NaN,
/// and so does all that is computed from it. Cost: 2·rows·rank^2 multiply-adds.
void orthonormalise(const MatrixShape&, std::size_t rank, std::span<float> p);

/// One column of P, whose elements are `stride` apart.
struct Column {
  float* first;
  std::size_t rows, stride;
  GRADMETER_HOST_DEVICE float& operator[](std::size_t i) const { return first[i * stride]; }
};

/// The parameter `rank`, from 1 to 1024. Errors: UsageError.
std::size_t rank_of(const core::ParsedName&);
void check_powersgd(const core::ParsedName&);

}  // namespace gradmeter::compression
