// SPDX-License-Identifier: Apache-2.0
#include "kernels/pointwise/pointwise.hpp"
#include "kernels/pointwise/row_sums.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <stdexcept>
#include <vector>

#include "core/random.hpp"
#include "kernels/loops.hpp"
#include "support/instruction_sets.hpp"

namespace gradmeter::kernels {
namespace {

// Ragged on every vector width, and one long enough for two threads.
constexpr std::size_t sizes[] = {0, 1, 15, 16, 17, 1000, 200001};
constexpr float guard = 12345.0F;

std::vector<float> gaussians(std::size_t n, std::uint64_t stream) {
  const core::Random random(5, stream);
  std::vector<float> values(n);
  for (std::size_t i = 0; i < n; ++i) values[i] = static_cast<float>(random.gaussian(i));
  return values;
}

// A buffer with one element after its end that nobody may touch.
struct Guarded {
  std::vector<float> all;
  explicit Guarded(std::vector<float> values) : all(std::move(values)) { all.push_back(guard); }
  std::span<float> span() { return {all.data(), all.size() - 1}; }
  std::vector<float> values() const { return {all.begin(), all.end() - 1}; }
  bool intact() const { return all.back() == guard; }
};

using tests::on_every_target;

// Half an ulp for each of the few roundings, of the largest magnitude that went in.
void expect_near(const std::vector<float>& value, const std::vector<float>& reference, double magnitude) {
  ASSERT_EQ(value.size(), reference.size());
  for (std::size_t i = 0; i < value.size(); ++i) ASSERT_NEAR(value[i], reference[i], 4 * 0x1p-24 * magnitude) << i;
}

TEST(ReluBackward, PassesTheGradientWhereTheActivationIsPositive) {
  for (const std::size_t n : sizes) {
    std::vector<float> activation = gaussians(n, 0);
    for (std::size_t i = 0; i < n; i += 3) activation[i] = i % 2 == 0 ? 0.0F : -0.0F;
    std::vector<float> expected = gaussians(n, 1);
    relu_backward_reference(activation, expected);
    on_every_target([&] {
      Guarded gradient(gaussians(n, 1));
      relu_backward(activation, gradient.span());
      EXPECT_EQ(gradient.values(), expected);
      EXPECT_TRUE(gradient.intact());
    });
  }
}

TEST(ReluBackward, ADeadUnitStopsEvenAnInfiniteGradient) {
  std::vector<float> gradient(20, std::numeric_limits<float>::infinity());
  relu_backward(std::vector<float>(20, 0.0F), gradient);
  EXPECT_EQ(gradient, std::vector<float>(20, 0.0F));
}

/// Rows added up piece by piece, and these sums again, until one is left.
std::vector<float> sum_by_pieces(std::vector<std::vector<float>> rows, std::size_t columns) {
  if (rows.empty()) return std::vector<float>(columns);
  do {
    std::vector<std::vector<float>> sums;
    for (std::size_t r = 0; r < rows.size(); ++r) {
      if (r % 32 == 0) sums.emplace_back(columns);
      for (std::size_t c = 0; c < columns; ++c) sums.back()[c] += rows[r][c];
    }
    rows = sums;
  } while (rows.size() > 1);
  return rows.front();
}

TEST(ColumnSums, AreTheBitsOfSumsByPiecesOnEveryInstructionSet) {
  for (const std::size_t rows : {0, 1, 3, 4, 5, 32, 33, 257, 1024, 1025, 2100})
    for (const std::size_t columns : {1, 10, 15, 16, 17, 1000}) {
      if (rows * columns > 1 << 19) continue;
      const std::vector<float> matrix = gaussians(rows * columns, 0);
      std::vector<std::vector<float>> by_row;
      for (std::size_t r = 0; r < rows; ++r)
        by_row.emplace_back(matrix.begin() + static_cast<std::ptrdiff_t>(r * columns),
                            matrix.begin() + static_cast<std::ptrdiff_t>((r + 1) * columns));
      const std::vector<float> expected = sum_by_pieces(by_row, columns);
      on_every_target([&] {
        Guarded out(std::vector<float>(columns, 99.0F));
        column_sums(matrix, columns, out.span());
        EXPECT_EQ(out.values(), expected) << rows << " x " << columns;
        EXPECT_TRUE(out.intact());
      });
      RowSums sums(columns);
      for (const auto& row : by_row) sums.add(row.data());
      std::vector<float> one_by_one(columns, 99.0F);
      sums.finish(one_by_one);
      EXPECT_EQ(one_by_one, expected) << rows << " x " << columns;
      std::vector<float> reference(columns);
      column_sums_reference(matrix, columns, reference);
      expect_near(expected, reference, 6.0 * std::sqrt(double(rows)) * std::sqrt(double(rows)));
    }
}

TEST(PlaneSum, IsThatOfThirtyTwoPartialSums) {
  for (const std::size_t n : {0, 1, 31, 32, 33, 500}) {
    const std::vector<float> plane = gaussians(n, 7);
    std::vector<float> sums(32);
    for (std::size_t i = 0; i < n; ++i) sums[i % 32] += plane[i];
    for (; sums.size() > 1; sums.resize(sums.size() / 2)) {
      for (std::size_t i = 0; i < sums.size() / 2; ++i) sums[i] += sums[i + sums.size() / 2];
    }
    EXPECT_EQ(plane_sum(plane), sums[0]) << n;
  }
}

TEST(Sgd, IsTwoRoundingsOnEveryInstructionSet) {
  constexpr float step = 0.02F;
  for (const std::size_t n : sizes) {
    const std::vector<float> w = gaussians(n, 0), g = gaussians(n, 1);
    std::vector<float> expected(n), reference = w;
    for (std::size_t i = 0; i < n; ++i) {
      const float change = step * g[i];
      expected[i] = w[i] - change;
    }
    on_every_target([&] {
      Guarded result(w);
      sgd(result.span(), g, step);
      EXPECT_EQ(result.values(), expected);
      EXPECT_TRUE(result.intact());
    });
    sgd_reference(reference, g, step);
    expect_near(expected, reference, 6);
  }
}

TEST(Sgd, AFusedMultiplyAddWouldBeSeen) {
  const std::vector<float> w = gaussians(1000, 0), g = gaussians(1000, 1);
  std::vector<float> apart = w, fused = w;
  sgd(apart, g, 0.02F);
  for (std::size_t i = 0; i < w.size(); ++i) fused[i] = std::fma(-0.02F, g[i], w[i]);
  EXPECT_NE(apart, fused);
}

class MomentumRule : public testing::TestWithParam<bool> {};

TEST_P(MomentumRule, RoundsEachOperationOnEveryInstructionSet) {
  const MomentumParameters p{.step = 0.02F, .mu = 0.9F, .nesterov = GetParam()};
  for (const std::size_t n : sizes) {
    const std::vector<float> w = gaussians(n, 0), v = gaussians(n, 1), g = gaussians(n, 2);
    std::vector<float> expected_w(n), expected_v(n), reference_w = w, reference_v = v;
    for (std::size_t i = 0; i < n; ++i) {
      const float decayed = p.mu * v[i];
      expected_v[i] = decayed + g[i];
      const float ahead = p.mu * expected_v[i];
      const float direction = p.nesterov ? g[i] + ahead : expected_v[i];
      const float change = p.step * direction;
      expected_w[i] = w[i] - change;
    }
    on_every_target([&] {
      Guarded result_w(w), result_v(v);
      momentum(result_w.span(), result_v.span(), g, p);
      EXPECT_EQ(result_w.values(), expected_w);
      EXPECT_EQ(result_v.values(), expected_v);
      EXPECT_TRUE(result_w.intact() && result_v.intact());
    });
    momentum_reference(reference_w, reference_v, g, p);
    expect_near(expected_w, reference_w, 12);
    expect_near(expected_v, reference_v, 12);
  }
}
INSTANTIATE_TEST_SUITE_P(Both, MomentumRule, testing::Bool(),
                         [](const auto& instance) { return instance.param ? "Nesterov" : "HeavyBall"; });

TEST(Momentum, WithNoMomentumIsSgd) {
  const std::vector<float> g = gaussians(100, 1);
  std::vector<float> a = gaussians(100, 0), b = a, v(100);
  momentum(a, v, g, {.step = 0.1F, .mu = 0, .nesterov = false});
  sgd(b, g, 0.1F);
  EXPECT_EQ(a, b);
}

TEST(Scale, MultipliesEachElementOnEveryInstructionSet) {
  for (const std::size_t n : sizes) {
    std::vector<float> expected = gaussians(n, 0);
    for (float& x : expected) x *= 0.3F;
    on_every_target([&] {
      Guarded values(gaussians(n, 0));
      scale(values.span(), 0.3F);
      EXPECT_EQ(values.values(), expected);
      EXPECT_TRUE(values.intact());
    });
  }
}

TEST(Pointwise, BuffersOfDifferentLengthAreRefused) {
  std::vector<float> three(3), four(4);
  EXPECT_THROW(relu_backward(three, four), std::invalid_argument);
  EXPECT_THROW(column_sums(four, 3, three), std::invalid_argument);
  EXPECT_THROW(column_sums(four, 2, three), std::invalid_argument);
  EXPECT_THROW(sgd(three, four, 1), std::invalid_argument);
  EXPECT_THROW(momentum(three, four, three, {}), std::invalid_argument);
  EXPECT_THROW(momentum(three, three, four, {}), std::invalid_argument);
  const Loops loops;
  EXPECT_THROW(loops.copy(three, four), std::invalid_argument);
  EXPECT_THROW(loops.add_and_scale(three, four, 1, four), std::invalid_argument);
  EXPECT_THROW(loops.add_and_scale(four, three, 1, four), std::invalid_argument);
  EXPECT_THROW(loops.bf16_nearest(three, four, {}), std::invalid_argument);
  EXPECT_THROW(loops.bf16_kahan(four, three, four, {}), std::invalid_argument);
  EXPECT_THROW(loops.bf16_kahan(four, four, three, {}), std::invalid_argument);
  EXPECT_THROW(loops.bf16_stochastic(four, three, 0, {}), std::invalid_argument);
}

}  // namespace
}  // namespace gradmeter::kernels
