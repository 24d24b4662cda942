// SPDX-License-Identifier: Apache-2.0
// The order in which the rows of a matrix are added up, for the gradients of biases, channels and layer norms. In this
// order, the host gives the same bits with any width of vectors and number of threads, and so does a GPU. Rows are cut
// into pieces of 32. The rows of a piece are added one after another; the sums of the pieces are the rows of a shorter
// matrix, which is added up in the same way, until one row is left. The numbers of one channel of an image are added up
// in another order: plane_sum.
#pragma once
#include <algorithm>
#include <array>
#include <cstddef>
#include <span>
#include <vector>

namespace gradmeter::kernels {

/// The rows of a piece, and the partial sums of plane_sum.
inline constexpr std::size_t rows_of_piece = 32, partial_sums_of_plane = 32;

/// Adds up rows of `width` numbers in the order above. Memory: one row for each level; there are about log32(rows)
/// levels.
class RowSums {
 public:
  explicit RowSums(std::size_t width) : width_(width) {}

  void add(const float* row) { add(0, row); }
  /// Adds the sum of all rows of one piece; only the last piece may have fewer than 32 rows.
  void add_piece(const float* sum) { add(1, sum); }
  /// Completes the sums and writes them; zeros if no row was added.
  void finish(std::span<float> sums) {
    std::ranges::fill(sums, 0.0F);
    for (std::size_t level = 0; level + 1 < levels_.size(); ++level) {
      if (levels_[level].rows > 0) add(level + 1, levels_[level].sum.data());
    }
    if (!levels_.empty()) std::ranges::copy(levels_.back().sum, sums.begin());
  }

 private:
  struct Level {
    std::vector<float> sum;
    std::size_t rows = 0;
  };

  void add(std::size_t level, const float* row) {
    while (levels_.size() <= level) levels_.push_back({.sum = std::vector<float>(width_)});
    Level& at = levels_[level];
    for (std::size_t j = 0; j < width_; ++j) at.sum[j] += row[j];
    if (++at.rows < rows_of_piece) return;
    add(level + 1, at.sum.data());
    std::ranges::fill(levels_[level].sum, 0.0F);
    levels_[level].rows = 0;
  }

  std::size_t width_;
  std::vector<Level> levels_;  ///< level 0 adds up rows of the matrix, level k the sums of 32^k rows each
};

/// The sum of a plane, which is one channel of one image. Element i is added to partial sum i mod 32, in the order of
/// i. Then the upper half of the partial sums is added to the lower half, until one is left.
inline float plane_sum(std::span<const float> plane) {
  std::array<float, partial_sums_of_plane> sums{};
  for (std::size_t begin = 0; begin < plane.size(); begin += partial_sums_of_plane) {
    const auto part = plane.subspan(begin, std::min(partial_sums_of_plane, plane.size() - begin));
    for (std::size_t i = 0; i < part.size(); ++i) sums[i] += part[i];
  }
  for (std::size_t half = partial_sums_of_plane / 2; half > 0; half /= 2) {
    for (std::size_t i = 0; i < half; ++i) sums[i] += sums[i + half];
  }
  return sums[0];
}

}  // namespace gradmeter::kernels
