// The inner loop of a matrix product in the logarithmic number system, for lns_gemm.cpp alone.
//
// Inside, a word is turned by one bit: (code << 1) | sign. The larger of two numbers is then the larger unsigned word,
// and twice the distance of the codes a plain difference. The codes of B are moved up by a constant and those of A
// replaced by how much they lie below the largest one, so that a product is one saturating subtraction that takes a
// zero in either factor to 0. What a loop without further checks asks for is that no code leaves the range and that
// nothing made of zeros alone can come within the tables' reach of a number: lns_gemm.cpp plans for it, and sums
// that it cannot plan for are left to `Lns` itself.
#pragma once
#include <cstddef>
#include <cstdint>

#include "kernels/lns_tables.hpp"

namespace gradmeter::kernels::detail {

/// Rows of C that a tile holds: their sums do not depend on each other, which hides the latency of one.
inline constexpr std::size_t lns_tile_rows = 8;

/// A factor of A: what to subtract from B's word, and 1 where it is negative.
struct LnsFactor {
  std::uint16_t below, sign;
};

struct LnsTile {
  const LnsFactor* a;      ///< [depth × lns_tile_rows]
  const std::uint16_t* b;  ///< [depth × 2 × lanes]: a row of B, then the same with all signs turned
  std::uint16_t* sums;     ///< [lns_tile_rows × lanes], in and out
  std::size_t depth;
  const LnsTables* tables;
};

/// How many columns a tile has: the 16-bit lanes of a vector on the instruction set in use.
std::size_t lns_tile_lanes();
/// sums[i][j] = sums[i][j] + a[k][i]·b[k][j] for k = 0, 1, …, depth − 1, each rounded.
/// Cost: one look-up a product: in registers with AVX-512, in memory elsewhere. Both give the bits of `Lns`.
void lns_tile(const LnsTile&);

}  // namespace gradmeter::kernels::detail
