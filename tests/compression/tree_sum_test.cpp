// SPDX-License-Identifier: Apache-2.0
#include "compression/detail/tree_sum.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "support.hpp"

namespace gradmeter::compression {
namespace {

using detail::TreeSum;

/// The order as it is stated: neighbours, level by level; where one has no neighbour it goes up alone.
double by_levels(std::vector<double> sums) {
  while (sums.size() > 1) {
    std::vector<double> above;
    for (std::size_t i = 0; i < sums.size(); i += 2) {
      above.push_back(i + 1 < sums.size() ? sums[i] + sums[i + 1] : sums[i]);
    }
    sums = above;
  }
  return sums.empty() ? 0 : sums[0];
}

TEST(TreeSum, AddsNeighboursLevelByLevel) {
  const auto x = gaussians(300, 1);
  for (std::size_t n = 0; n <= x.size(); ++n) {
    TreeSum sum;
    for (std::size_t i = 0; i < n; ++i) sum.add(double{x[i]} / 3);
    std::vector<double> all(n);
    for (std::size_t i = 0; i < n; ++i) all[i] = double{x[i]} / 3;
    EXPECT_EQ(sum.total(), by_levels(all)) << n;
  }
}

/// Each small number alone is lost beside the large one; a tree adds the small ones first.
TEST(TreeSum, KeepsWhatAddingInTurnWouldLose) {
  TreeSum sum;
  double in_turn = 0;
  for (std::size_t i = 0; i < 1024; ++i) {
    const double x = i == 0 ? 1 : 0x1p-54;
    sum.add(x);
    in_turn += x;
  }
  EXPECT_EQ(in_turn, 1);
  EXPECT_NEAR(sum.total() - 1, 1022 * 0x1p-54, 3 * 0x1p-54);
}

/// A mean half-way between two floats, but for small numbers in the second piece. Beside the large ones, in any of the
/// sixteen partial sums, they would be lost: a bucket's scale shows the order in which it was summed.
TEST(TreeSum, IsTheOrderOfOnebitsMeans) {
  std::vector<float> x(1024, 0x1p-54F);
  std::fill_n(x.begin(), 16, 1.0F);
  x[16] = 0x1p-20F;
  const Bytes wire = encoded(*codec("onebit:bucket=1024"), x);
  float mean = 0;
  std::memcpy(&mean, wire.data(), 4);
  EXPECT_EQ(mean * 1024, 16 * (1 + 0x1p-23F));
}

}  // namespace
}  // namespace gradmeter::compression
