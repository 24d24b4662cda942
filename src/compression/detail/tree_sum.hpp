// SPDX-License-Identifier: Apache-2.0
// Sums of many numbers, in an order that vectors, threads and a GPU's blocks can all follow quickly.
#pragma once
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace gradmeter::compression::detail {

/// Long sums are cut into pieces of 512 elements. In a piece, element i is added to partial sum i mod 16, in order;
/// then the sixteen partial sums are added pairwise: first sum i + 8 to sum i, then sum i + 4 to sum i, and so on. A
/// TreeSum adds up the sums of the pieces.
inline constexpr std::size_t sum_piece = 512, sum_lanes = 16;

/// Adds numbers as a tree: first neighbours (0 + 1, 2 + 3, …), then neighbours among these sums ((0 + 1) + (2 + 3), …),
/// and so on. A sum without a neighbour moves up a level unchanged.
class TreeSum {
 public:
  /// `sum`: the sum of the next 2^level pieces. The number of pieces added before must be a multiple of 2^level.
  constexpr void add(double sum, std::size_t level = 0) {
    // If bit b of the count is set, level b holds the sum of 2^b pieces.
    std::size_t b = level;
    for (; count_ >> b & 1; ++b) sum = level_[b] + sum;
    level_[b] = sum;
    count_ += std::uint64_t{1} << level;
  }
  constexpr double total() const {
    if (count_ == 0) return 0;
    auto b = static_cast<std::size_t>(std::countr_zero(count_));
    double sum = level_[b];
    for (++b; count_ >> b != 0; ++b) {
      if (count_ >> b & 1) sum = level_[b] + sum;
    }
    return sum;
  }

 private:
  std::uint64_t count_ = 0;
  std::array<double, 56> level_{};  ///< 2^55 pieces are more than memory holds
};

constexpr double pairwise_sum(std::array<double, sum_lanes> s) {
  for (std::size_t half = sum_lanes / 2; half > 0; half /= 2) {
    for (std::size_t i = 0; i < half; ++i) s[i] += s[i + half];
  }
  return s[0];
}

/// The sum of n numbers, where `of_piece(first, count)` returns the sum of one piece.
template <class OfPiece>
constexpr double sum_by_pieces(std::size_t n, OfPiece of_piece) {
  TreeSum sum;
  for (std::size_t first = 0; first < n; first += sum_piece) {
    sum.add(of_piece(first, n - first < sum_piece ? n - first : sum_piece));
  }
  return sum.total();
}

}  // namespace gradmeter::compression::detail
