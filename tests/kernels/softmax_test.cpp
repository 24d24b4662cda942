// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <stdexcept>
#include <vector>

#include "core/random.hpp"
#include "kernels/pointwise/pointwise.hpp"
#include "support/accuracy.hpp"

namespace gradmeter::kernels {
namespace {

struct Case {
  std::size_t classes;
  std::vector<float> logits;
  std::vector<std::int32_t> labels;
};

Case random_case(std::size_t rows, std::size_t classes, double spread) {
  const core::Random random(3, rows * 1000 + classes);
  Case c{classes, std::vector<float>(rows * classes), std::vector<std::int32_t>(rows)};
  for (std::size_t i = 0; i < c.logits.size(); ++i) c.logits[i] = static_cast<float>(spread * random.gaussian(i));
  for (std::size_t i = 0; i < rows; ++i) c.labels[i] = static_cast<std::int32_t>(random.below(i, classes));
  return c;
}

TEST(Softmax, AgreesWithTheReference) {
  for (const std::size_t rows : {0, 1, 15, 16, 17, 256})
    for (const std::size_t classes : {1, 2, 10, 17, 1000})
      for (const double spread : {0.1, 3.0, 50.0}) {
        const Case c = random_case(rows, classes, spread);
        std::vector<float> gradient(c.logits.size()), expected(c.logits.size());
        const CrossEntropy got = softmax_cross_entropy(c.logits, c.labels, classes, 0.25F, gradient);
        const CrossEntropy want = softmax_cross_entropy_reference(c.logits, c.labels, classes, 0.25F, expected);
        EXPECT_NEAR(got.loss_sum, want.loss_sum, 1e-6 * want.loss_sum + 1e-7 * double(rows));
        EXPECT_EQ(got.correct, want.correct);
        EXPECT_LE(test::relative_error(gradient, expected), 4e-7) << rows << " x " << classes << " spread " << spread;
      }
}

TEST(Softmax, TheReferenceIsRightOnAnAnswerWorkedByHand) {
  // Logits log 1, log 2, log 5: probabilities 1/8, 2/8, 5/8.
  const std::vector<float> logits{0.0F, std::log(2.0F), std::log(5.0F)};
  const std::vector<std::int32_t> labels{1};
  std::vector<float> gradient(3);
  const CrossEntropy got = softmax_cross_entropy_reference(logits, labels, 3, 1, gradient);
  EXPECT_NEAR(got.loss_sum, std::log(4.0), 1e-6);
  EXPECT_EQ(got.correct, 0U);
  EXPECT_NEAR(gradient[0], 0.125, 1e-6);
  EXPECT_NEAR(gradient[1], -0.75, 1e-6);
  EXPECT_NEAR(gradient[2], 0.625, 1e-6);
}

TEST(Softmax, TheReferencesGradientIsTheSlopeOfItsLoss) {
  const Case c = random_case(2, 5, 1);
  std::vector<float> gradient(10);
  softmax_cross_entropy_reference(c.logits, c.labels, 5, 1, gradient);
  for (std::size_t i = 0; i < 10; ++i) {
    constexpr float h = 0x1p-10F;
    Case up = c, down = c;
    up.logits[i] += h;
    down.logits[i] -= h;
    const double width = double{up.logits[i]} - double{down.logits[i]};
    const double rise = softmax_cross_entropy_reference(up.logits, c.labels, 5, 1, {}).loss_sum -
                        softmax_cross_entropy_reference(down.logits, c.labels, 5, 1, {}).loss_sum;
    EXPECT_NEAR(gradient[i], rise / width, 1e-6);
  }
}

TEST(Softmax, LargeLogitsDoNotOverflow) {
  const std::vector<float> logits{1e4F, 0, -1e4F, 3e38F, -3e38F, 0};
  const std::vector<std::int32_t> labels{1, 0};
  std::vector<float> gradient(6);
  const CrossEntropy got = softmax_cross_entropy(logits, labels, 3, 1, gradient);
  EXPECT_DOUBLE_EQ(got.loss_sum, 1e4);
  EXPECT_EQ(got.correct, 1U);
  EXPECT_EQ(gradient, (std::vector<float>{1, -1, 0, 0, 0, 0}));
}

TEST(Softmax, OfEqualLogitsTheFirstIsTheAnswer) {
  const std::vector<float> logits{2, 2, 2, 2, 1, 3, 3, 0};
  EXPECT_EQ(softmax_cross_entropy(logits, std::vector<std::int32_t>{0, 1}, 4, 1, {}).correct, 2U);
  EXPECT_EQ(softmax_cross_entropy(logits, std::vector<std::int32_t>{1, 2}, 4, 1, {}).correct, 0U);
}

TEST(Softmax, EqualLogitsLoseTheLogarithmOfTheClasses) {
  const std::vector<float> logits(30, 7.0F);
  const CrossEntropy got = softmax_cross_entropy(logits, std::vector<std::int32_t>{0, 5, 9}, 10, 1, {});
  EXPECT_NEAR(got.loss_sum, 3 * std::log(10.0), 1e-12);
}

TEST(Softmax, EachRowsGradientSumsToZero) {
  const Case c = random_case(64, 10, 2);
  std::vector<float> gradient(640);
  softmax_cross_entropy(c.logits, c.labels, 10, 1, gradient);
  for (std::size_t i = 0; i < 64; ++i)
    EXPECT_NEAR(std::accumulate(&gradient[i * 10], &gradient[i * 10] + 10, 0.0), 0, 1e-6);
}

TEST(Softmax, WithoutAGradientTheLossIsTheSame) {
  const Case c = random_case(17, 10, 2);
  std::vector<float> gradient(170);
  const CrossEntropy with = softmax_cross_entropy(c.logits, c.labels, 10, 1, gradient);
  const CrossEntropy without = softmax_cross_entropy(c.logits, c.labels, 10, 1, {});
  EXPECT_EQ(with.loss_sum, without.loss_sum);
  EXPECT_EQ(with.correct, without.correct);
}

TEST(Softmax, ASureAnswerKeepsTheDigitsOfItsSmallGradient) {
  const std::vector<float> logits{20, 0, 0};
  std::vector<float> gradient(3), expected(3);
  const std::vector<std::int32_t> labels{0};
  softmax_cross_entropy(logits, labels, 3, 1, gradient);
  softmax_cross_entropy_reference(logits, labels, 3, 1, expected);
  EXPECT_LT(expected[0], 0);
  EXPECT_NEAR(gradient[0] / expected[0], 1, 1e-5);
}

TEST(Softmax, LabelsOutsideTheClassesAndWrongLengthsAreRefused) {
  const std::vector<float> logits(6);
  std::vector<float> short_gradient(5);
  using Labels = std::vector<std::int32_t>;
  EXPECT_THROW(softmax_cross_entropy(logits, Labels{0, 3}, 3, 1, {}), std::invalid_argument);
  EXPECT_THROW(softmax_cross_entropy(logits, Labels{-1, 0}, 3, 1, {}), std::invalid_argument);
  EXPECT_THROW(softmax_cross_entropy(logits, Labels{0}, 3, 1, {}), std::invalid_argument);
  EXPECT_THROW(softmax_cross_entropy(logits, Labels{0, 1}, 3, 1, short_gradient), std::invalid_argument);
}

}  // namespace
}  // namespace gradmeter::kernels
