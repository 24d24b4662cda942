// SPDX-License-Identifier: Apache-2.0
#include "kernels/sparse/sparse.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <map>
#include <stdexcept>
#include <vector>

#include "core/format.hpp"
#include "core/random.hpp"
#include "kernels/number_format.hpp"
#include "support/instruction_sets.hpp"

namespace gradmeter::kernels {
namespace {

constexpr float untouched = 12345.0F;

// Against the product of the dense matrix, each element within what rounding may do to its sum.
void expect_product(const SparseMatrix& a, std::size_t n) {
  const std::vector<float> dense = to_dense(a);
  std::vector<float> b(a.columns * n), c(a.rows * n + 1, std::numeric_limits<float>::quiet_NaN());
  fill_gaussian(b, 3);
  c.back() = untouched;
  sparse_multiply(a, b, n, std::span(c).first(a.rows * n));
  EXPECT_EQ(c.back(), untouched);
  for (std::size_t i = 0; i < a.rows; ++i)
    for (std::size_t j = 0; j < n; ++j) {
      double sum = 0, size = 0;
      for (std::size_t l = 0; l < a.columns; ++l) {
        const double product = double{dense[i * a.columns + l]} * double{b[l * n + j]};
        sum += product, size += std::fabs(product);
      }
      ASSERT_NEAR(c[i * n + j], sum, 0x1p-24 * std::fabs(sum) + 0x1p-20 * size)
          << fmt::format("row {} column {} of {} x {} x {} {}", i, j, a.rows, n, a.columns, name(a.format));
    }
}

class SparseProduct : public testing::TestWithParam<SparseFormat> {};

// Widths on both sides of every vector length, of its multiples, and of the forms for few columns.
TEST_P(SparseProduct, IsThatOfTheDenseMatrixForEveryWidthOnEveryInstructionSet) {
  const std::size_t widths[] = {1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 100, 129};
  const SparseMatrix a = random_sparse(37, 53, 0.8, GetParam(), 1);
  tests::on_every_target([&] {
    for (const std::size_t n : widths) expect_product(a, n);
  });
}

TEST_P(SparseProduct, IsRightOnRandomRaggedShapes) {
  const core::Random random(11, 0);
  tests::on_every_target([&] {
    for (std::uint64_t i = 0; i < 24; ++i)
      expect_product(random_sparse(1 + random.below(4 * i, 90), 1 + random.below(4 * i + 1, 300),
                                   random.uniform(4 * i + 2), GetParam(), i),
                     1 + random.below(4 * i + 3, 40));
  });
}

TEST_P(SparseProduct, IsRightWithRowsThatAreEmptyOrAllOfThem) {
  tests::on_every_target([&] {
    for (const std::size_t n : {1, 2, 4, 20, 70}) {
      expect_product(random_sparse(40, 6, 0.9, GetParam(), 5), n);  // most rows have nothing
      expect_product(random_sparse(40, 30, 1, GetParam(), 5), n);   // all of it is zero
      expect_product(random_sparse(40, 30, 0, GetParam(), 5), n);   // nothing is
      expect_product(random_sparse(1, 1, 0, GetParam(), 5), n);
    }
  });
}

TEST_P(SparseProduct, IsRightWithFewerColumnsThanLanes) {
  tests::on_every_target([&] {
    for (std::size_t k = 1; k < 16; ++k) expect_product(random_sparse(19, k, 0.5, GetParam(), k), 1 + k % 5);
  });
}

TEST_P(SparseProduct, HasTheSameBitsForAnyNumberOfThreads) {
  const SparseMatrix a = random_sparse(1000, 500, 0.9, GetParam(), 7);
  std::vector<float> b(500 * 8), one(1000 * 8), three(1000 * 8);
  fill_gaussian(b, 1);
  set_compute_threads(1);
  sparse_multiply(a, b, 8, one);
  set_compute_threads(3);
  sparse_multiply(a, b, 8, three);
  set_compute_threads(1);
  EXPECT_EQ(one, three);
}

TEST_P(SparseProduct, OfNoColumnsIsNothing) {
  const SparseMatrix a = random_sparse(10, 10, 0.5, GetParam(), 7);
  EXPECT_NO_THROW(sparse_multiply(a, {}, 0, {}));
}

TEST_P(SparseProduct, BuffersOfTheWrongLengthAreRefused) {
  const SparseMatrix a = random_sparse(10, 12, 0.5, GetParam(), 7);
  std::vector<float> b(24), c(20), longer(25);
  EXPECT_NO_THROW(sparse_multiply(a, b, 2, c));
  EXPECT_THROW(sparse_multiply(a, longer, 2, c), std::invalid_argument);
  EXPECT_THROW(sparse_multiply(a, b, 2, longer), std::invalid_argument);
}

INSTANTIATE_TEST_SUITE_P(Formats, SparseProduct, testing::Values(SparseFormat::csr, SparseFormat::blocked),
                         [](const auto& instance) { return std::string(name(instance.param)); });

TEST(SparseProductOfTwoOfFour, IsThatOfTheDenseMatrixOnEveryInstructionSet) {
  tests::on_every_target([&] {
    for (const std::size_t n : {1, 3, 8, 33, 129})
      expect_product(random_sparse(37, 52, 0.5, SparseFormat::two_of_four, n), n);
  });
}

double kept(const SparseMatrix& a) {
  const std::vector<float> dense = to_dense(a);
  const auto zeros = static_cast<double>(std::ranges::count(dense, 0.0F));
  return 1 - zeros / static_cast<double>(dense.size());
}

// A 320 x 500 pattern: the share's standard deviation is below 0.1 %, in blocks of sixteen below 0.5 %.
TEST(RandomSparse, KeepsTheShareThatWasAskedFor) {
  for (const double sparsity : {0.0, 0.5, 0.9, 0.95, 1.0}) {
    EXPECT_NEAR(kept(random_sparse(320, 500, sparsity, SparseFormat::csr, 1)), 1 - sparsity, 0.005) << sparsity;
    EXPECT_NEAR(kept(random_sparse(320, 500, sparsity, SparseFormat::blocked, 1)), 1 - sparsity, 0.02) << sparsity;
  }
}

TEST(RandomSparse, IsTheSameForTheSameSeedAndAnotherForAnother) {
  const SparseMatrix a = random_sparse(30, 50, 0.9, SparseFormat::csr, 1);
  EXPECT_EQ(a.columns_of, random_sparse(30, 50, 0.9, SparseFormat::csr, 1).columns_of);
  EXPECT_EQ(a.values, random_sparse(30, 50, 0.9, SparseFormat::csr, 1).values);
  EXPECT_NE(a.columns_of, random_sparse(30, 50, 0.9, SparseFormat::csr, 2).columns_of);
}

TEST(RandomSparse, SixteenRowsOfABlockShareTheirPattern) {
  const SparseMatrix a = random_sparse(40, 50, 0.7, SparseFormat::blocked, 1);
  const std::vector<float> dense = to_dense(a);
  for (std::size_t i = 0; i < 40; ++i)
    for (std::size_t j = 0; j < 50; ++j) {
      ASSERT_EQ(dense[i * 50 + j] == 0, dense[i / 16 * 16 * 50 + j] == 0) << i << ' ' << j;
    }
}

// Each number of a 320 x 500 matrix is kept or not with even chances, and any two neighbours of four alike often.
TEST(RandomSparse, KeepsTwoOfEachFourNeighbours) {
  const SparseMatrix a = random_sparse(320, 500, 0.5, SparseFormat::two_of_four, 1);
  const std::vector<float> dense = to_dense(a);
  std::map<unsigned, double> share;
  for (std::size_t first = 0; first < dense.size(); first += 4) {
    unsigned kept_ones = 0;
    for (unsigned i = 0; i < 4; ++i) kept_ones |= (dense[first + i] != 0 ? 1u : 0) << i;
    share[kept_ones] += 4 / static_cast<double>(dense.size());
  }
  EXPECT_EQ(share.size(), 6u);
  for (const auto& [kept_ones, of_all] : share) {
    EXPECT_EQ(std::popcount(kept_ones), 2) << kept_ones;
    EXPECT_NEAR(of_all, 1.0 / 6, 0.01) << kept_ones;
  }
  EXPECT_EQ(a.columns_of, random_sparse(320, 500, 0.5, SparseFormat::two_of_four, 1).columns_of);
  EXPECT_NE(a.columns_of, random_sparse(320, 500, 0.5, SparseFormat::two_of_four, 2).columns_of);
}

TEST(RandomSparse, TwoOfFourIsHalfOfAWholeNumberOfFours) {
  EXPECT_THROW(random_sparse(4, 8, 0.9, SparseFormat::two_of_four, 1), std::invalid_argument);
  EXPECT_THROW(random_sparse(4, 6, 0.5, SparseFormat::two_of_four, 1), std::invalid_argument);
}

TEST(RandomSparse, AShareThatIsNoneIsRefused) {
  EXPECT_THROW(random_sparse(1, 1, 1.5, SparseFormat::csr, 1), std::invalid_argument);
  EXPECT_THROW(random_sparse(1, 1, -0.1, SparseFormat::csr, 1), std::invalid_argument);
  EXPECT_THROW(random_sparse(1, std::size_t{1} << 31, 1, SparseFormat::csr, 1), std::invalid_argument);
}

}  // namespace
}  // namespace gradmeter::kernels
