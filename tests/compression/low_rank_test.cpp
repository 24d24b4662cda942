// SPDX-License-Identifier: Apache-2.0
#include "compression/codecs/low_rank.hpp"

#include "compression/support.hpp"
#include "core/error.hpp"

namespace gradmeter::compression {
namespace {

/// A sum of `rank` outer products, cut off after `count` elements.
std::vector<float> of_rank(const MatrixShape& m, std::size_t rank) {
  std::vector<float> x(m.count);
  for (std::size_t j = 0; j < rank; ++j) {
    const auto a = gaussians(m.rows, 1, 2 * j), b = gaussians(m.columns, 1, 2 * j + 1);
    for (std::size_t i = 0; i < m.count; ++i) x[i] += a[i / m.columns] * b[i % m.columns];
  }
  return x;
}

struct Factors {
  std::vector<float> p, q;
};
/// One step of one rank.
Factors step(const MatrixShape& m, std::size_t rank, std::span<const float> x) {
  Factors f{std::vector<float>(m.p_size(rank)), std::vector<float>(m.q_size(rank))};
  draw_first_q(m, rank, 5, 1, f.q);
  multiply(m, rank, x, f.q, f.p);
  orthonormalise(m, rank, f.p);
  multiply_transposed(m, rank, x, f.p, f.q);
  return f;
}
std::vector<float> product_of(const MatrixShape& m, std::size_t rank, const Factors& f) {
  std::vector<float> out(m.count + 1, 77.0F);
  reconstruct(m, rank, f.p, f.q, std::span(out).first(m.count));
  EXPECT_EQ(out.back(), 77.0F);
  out.pop_back();
  return out;
}
double distance(std::span<const float> a, std::span<const float> b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += std::pow(double{a[i]} - double{b[i]}, 2);
  return std::sqrt(sum);
}

/// The definitions, with no vectors and no rows cut out.
float element(const MatrixShape& m, std::span<const float> x, std::size_t i, std::size_t c) {
  return i * m.columns + c < m.count ? x[i * m.columns + c] : 0.0F;
}

TEST(LowRank, IsExactWhereTheRankSuffices) {
  const MatrixShape m{.rows = 60, .columns = 47, .count = 60 * 47};
  for (const std::size_t rank : {1u, 2u, 3u, 4u, 7u}) {
    for (const std::size_t actual : {std::size_t{1}, rank}) {
      if (actual > rank) continue;
      const auto x = of_rank(m, actual);
      EXPECT_LT(distance(product_of(m, rank, step(m, rank, x)), x), 1e-5 * length(x)) << rank;
    }
  }
  const auto x = of_rank(m, 3);
  EXPECT_GT(distance(product_of(m, 2, step(m, 2, x)), x), 0.05 * length(x)) << "rank 2 cannot hold rank 3";
}

TEST(LowRank, ProductsAreTheirDefinitionsOnEveryInstructionSet) {
  for (const MatrixShape m : {MatrixShape{1, 1, 1}, MatrixShape{3, 2, 5}, square_matrix(1000), square_matrix(4099),
                              MatrixShape{33, 64, 2112}}) {
    for (const std::size_t rank : {1u, 2u, 3u, 4u, 7u}) {
      const auto x = gaussians(m.count, 1), p = gaussians(m.p_size(rank), 1, 1), q = gaussians(m.q_size(rank), 1, 2);
      std::vector<float> first_p, first_q, first_out;
      on_every_target([&] {
        std::vector<float> made_p(p.size()), made_q(q.size(), 5.0F);
        multiply(m, rank, x, q, made_p);
        multiply_transposed(m, rank, x, p, made_q);
        const auto out = product_of(m, rank, {p, q});
        for (std::size_t j = 0; j < rank; ++j) {
          for (std::size_t i = 0; i < m.rows; ++i) {
            double sum = 0;
            for (std::size_t c = 0; c < m.columns; ++c)
              sum += double{element(m, x, i, c)} * double{q[j * m.columns + c]};
            ASSERT_NEAR(made_p[i * rank + j], sum, 1e-4);
          }
          for (std::size_t c = 0; c < m.columns; ++c) {
            double sum = 0;
            for (std::size_t i = 0; i < m.rows; ++i) sum += double{element(m, x, i, c)} * double{p[i * rank + j]};
            ASSERT_NEAR(made_q[j * m.columns + c], sum, 1e-4);
          }
        }
        for (std::size_t i = 0; i < m.count; ++i) {
          float sum = p[i / m.columns * rank] * q[i % m.columns];
          for (std::size_t j = 1; j < rank; ++j) {
            const float term = p[i / m.columns * rank + j] * q[j * m.columns + i % m.columns];
            sum += term;
          }
          ASSERT_EQ(out[i], sum);
        }
        if (first_p.empty()) first_p = made_p, first_q = made_q, first_out = out;
        ASSERT_EQ(made_p, first_p);
        ASSERT_EQ(made_q, first_q);
        ASSERT_EQ(out, first_out);
      });
    }
  }
}

TEST(LowRank, ColumnsBecomeOrthonormal) {
  const MatrixShape m{.rows = 300, .columns = 10, .count = 3000};
  constexpr std::size_t rank = 5;
  auto p = gaussians(m.p_size(rank), 3);
  for (std::size_t i = 0; i < m.rows; ++i) p[i * rank + 3] = p[i * rank] + 0.001F * p[i * rank + 3];  // nearly parallel
  orthonormalise(m, rank, p);
  for (std::size_t a = 0; a < rank; ++a) {
    for (std::size_t b = 0; b <= a; ++b) {
      double sum = 0;
      for (std::size_t i = 0; i < m.rows; ++i) sum += double{p[i * rank + a]} * double{p[i * rank + b]};
      EXPECT_NEAR(sum, a == b ? 1 : 0, 1e-6) << a << ' ' << b;
    }
  }
}

TEST(LowRank, DependentColumnsBecomeZeroAndBadOnesNaN) {
  const MatrixShape m{.rows = 100, .columns = 10, .count = 1000};
  auto p = gaussians(300, 3);
  for (std::size_t i = 0; i < 100; ++i) p[3 * i + 1] = -2.5F * p[3 * i], p[3 * i + 2] = 0;
  orthonormalise(m, 3, p);
  for (std::size_t i = 0; i < 100; ++i) {
    EXPECT_EQ(p[3 * i + 1], 0);
    EXPECT_EQ(p[3 * i + 2], 0);
  }
  p[3] = std::numeric_limits<float>::infinity();
  orthonormalise(m, 3, p);
  EXPECT_TRUE(std::isnan(p[3]));
  std::vector<float> q(m.q_size(3), 1.0F);
  for (const float v : product_of(m, 3, {p, q})) EXPECT_TRUE(std::isnan(v));
}

TEST(LowRank, ABadGradientIsSeenEverywhere) {
  const MatrixShape m = square_matrix(1000);
  auto x = gaussians(m.count);
  x[500] = std::numeric_limits<float>::quiet_NaN();
  for (const float v : product_of(m, 4, step(m, 4, x))) ASSERT_TRUE(std::isnan(v));
  const std::vector<float> zeros(m.count);
  EXPECT_EQ(product_of(m, 4, step(m, 4, zeros)), zeros);
}

TEST(LowRank, FirstQIsOneOfStandardNormalsForAllRanks) {
  const MatrixShape m = square_matrix(1 << 20);
  std::vector<float> q(m.q_size(4)), again(m.q_size(4));
  draw_first_q(m, 4, 5, 1, q);
  draw_first_q(m, 4, 5, 1, again);
  EXPECT_EQ(q, again);
  draw_first_q(m, 4, 5, 2, again);
  EXPECT_NE(q, again);
  EXPECT_NEAR(length(q), std::sqrt(static_cast<double>(q.size())), 0.03 * length(q));
}

TEST(LowRank, MatricesHoldEveryElementAndAreNearlySquare) {
  for (const std::size_t n : {std::size_t{1}, std::size_t{2}, std::size_t{9}, std::size_t{10},
                              (std::size_t{1} << 24) + 1, (std::size_t{1} << 52) + 1}) {
    const MatrixShape m = square_matrix(n);
    EXPECT_GE(m.rows * m.columns, n);
    EXPECT_LT((m.rows - 1) * m.columns, n);
    EXPECT_LE(m.columns - m.rows, 1u);
  }
  EXPECT_EQ(square_matrix(0).p_size(4) + square_matrix(0).q_size(4), 0u);
}

TEST(LowRank, PaysWhereItHalvesTheBytes) {
  EXPECT_TRUE(low_rank_pays(16, 16, 4));  // 2·4·32 = 256
  EXPECT_FALSE(low_rank_pays(16, 15, 4));
  EXPECT_TRUE(low_rank_refusal({16, 15, 240}, 15).empty());
  EXPECT_NE(low_rank_refusal({16, 15, 240}, 16).find("1 to 15"), std::string::npos);
  EXPECT_FALSE(low_rank_refusal({16, 15, 240}, 0).empty());
  for (const auto* bad : {"powersgd:rank=0", "powersgd:rank=-1", "powersgd:rank=x"}) {
    EXPECT_THROW(find_codec(bad), core::UsageError) << bad;
  }
}

}  // namespace
}  // namespace gradmeter::compression
