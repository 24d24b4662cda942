// SPDX-License-Identifier: Apache-2.0
// The inner loop of a matrix product in the logarithmic number system, for lns/gemm.cpp alone.
//
// In this loop, words are rotated by one bit: (code << 1) | sign. The larger of two unsigned words is then the number
// of larger magnitude, and the difference of the words is twice that of the codes, give or take 1 for the signs. (With
// AVX-512, codes and signs are kept apart while a tile is computed; rotated words are only read and written.)
//
// LnsChecks::none is faster, but has conditions. All codes of B are raised by a constant, and each code of A is
// replaced by its distance below A's largest code. A product is then one saturating subtraction, which gives 0 if
// either factor is zero. Zeros are summed like numbers of code 0, so they may add up to small codes. The result is
// right only if no code leaves the range, and if these small codes are so far below those of all numbers that they
// change no sum. The caller, who packs A and B, makes sure of both.
//
// LnsChecks::all has no conditions: zeros, underflow and saturation are as in `Lns`.
#pragma once
#include <cstddef>
#include <cstdint>

#include "kernels/lns/tables.hpp"

namespace gradmeter::kernels::detail {

/// The rows of C in a tile. The sums of different rows do not depend on each other, so a processor can work on one
/// while it waits for another.
inline constexpr std::size_t lns_tile_rows = 8;

enum class LnsChecks { none, all };

/// An element of A. `below` is subtracted from the code of B's element, and is 0xffff if A's element is zero; all bits
/// of `sign` are set if A's element is negative.
struct LnsFactor {
  std::uint16_t below = 0xffff;
  std::uint32_t sign = 0;
};

/// The number of forms in which each row of B is packed; LnsTile::b lists them.
constexpr std::size_t lns_tile_copies(LnsChecks checks) { return checks == LnsChecks::none ? 2 : 3; }

/// The arguments of lns_tile.
struct LnsTile {
  const LnsFactor* a;  ///< [depth × lns_tile_rows]
  /// [depth × copies × lanes], with the forms (`lns_tile_copies`) of a row of B one after another. Without checks: the
  /// row's words, and its words with all signs inverted; zeros have sign 0 in both. With checks: the row's signs, its
  /// signs inverted, and its codes, which are not rotated and may need all 16 bits.
  const std::uint16_t* b;
  std::uint16_t* sums;  ///< rotated words [lns_tile_rows × lanes], in and out
  std::size_t depth;    ///< number of products in each sum
  const LnsTables* tables;
  LnsChecks checks;
};

/// The number of a tile's columns: the 16-bit lanes of a vector on the instruction set in use.
std::size_t lns_tile_lanes();
/// sums[i][j] = sums[i][j] + a[k][i]·b[k][j] for k = 0, 1, …, depth − 1, where each addition rounds.
/// Cost: one look-up for each product, in registers with AVX-512, else in memory. Both give the bits of `Lns`.
void lns_tile(const LnsTile&);

}  // namespace gradmeter::kernels::detail
