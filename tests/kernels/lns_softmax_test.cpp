// SPDX-License-Identifier: Apache-2.0
#include "kernels/lns/lns.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <vector>

#include "core/random.hpp"

namespace gradmeter::kernels {
namespace {

TEST(LnsSoftmax, OfEqualLogitsIsExact) {
  for (const unsigned bits : {6U, 7U, 8U}) {
    const Lns lns(bits);
    const std::vector<float> logits{3, 3, -1, -1};
    const std::vector<std::int32_t> labels{0, 1};
    std::vector<float> gradient(4);
    const auto found = lns_softmax_cross_entropy(lns, logits, labels, 2, 0.25F, gradient);
    EXPECT_DOUBLE_EQ(found.loss_sum, 2 * std::numbers::ln2);
    EXPECT_EQ(found.correct, 1U) << "of equal logits the first counts";
    EXPECT_EQ(gradient, (std::vector<float>{-0.125F, 0.125F, 0.125F, -0.125F}));
  }
}

/// Against the definition in float64, within the half codes that each operation may round: of the difference to the
/// largest logit, of its exponential, of each partial sum, and of p − 1.
TEST(LnsSoftmax, IsWithinItsRoundingOfTheDefinition) {
  constexpr std::size_t rows = 400, classes = 10;
  const core::Random random(3, 1);
  for (const unsigned bits : {6U, 7U, 8U}) {
    const Lns lns(bits);
    const double half = std::numbers::ln2 / 2 / double(1U << bits);
    std::vector<float> logits(rows * classes), gradient(logits.size());
    std::vector<std::int32_t> labels(rows);
    for (std::size_t i = 0; i < logits.size(); ++i)
      logits[i] = static_cast<float>(lns.decode(lns.encode(2 * random.gaussian(i))));
    for (std::size_t r = 0; r < rows; ++r) labels[r] = static_cast<std::int32_t>((7 * r + 3) % classes);
    const auto found = lns_softmax_cross_entropy(lns, logits, labels, classes, 0x1p-9F, gradient);
    double loss = 0, allowed_loss = 0;
    for (std::size_t r = 0; r < rows; ++r) {
      double top = -1e9, sum = 0, widest = 0;
      for (std::size_t j = 0; j < classes; ++j) top = std::max(top, double{logits[r * classes + j]});
      for (std::size_t j = 0; j < classes; ++j) {
        sum += std::exp(logits[r * classes + j] - top);
        widest = std::max(widest, top - logits[r * classes + j]);
      }
      const double relative = half * (2 * widest + classes + 2);
      for (std::size_t j = 0; j < classes; ++j) {
        const double p = std::exp(logits[r * classes + j] - top) / sum;
        const bool is_label = static_cast<std::size_t>(labels[r]) == j;
        const double right = (p - (is_label ? 1 : 0)) * 0x1p-9;
        EXPECT_NEAR(gradient[r * classes + j], right, 0x1p-9 * relative * (p + std::fabs(right) * 0x1p9)) << bits;
        if (!is_label) continue;
        loss -= std::log(p);
        allowed_loss += relative;
      }
    }
    EXPECT_NEAR(found.loss_sum, loss, allowed_loss);
    EXPECT_GT(std::fabs(found.loss_sum - loss), 1e-6) << "a loss in fp32 would be nearer";
  }
}

TEST(LnsSoftmax, EveryNumberIsOneOfTheSystem) {
  const Lns lns(7);
  const std::vector<float> logits{0.3F, -1.7F, 2.9F, 100.0F, -200.0F, 0.0F};
  std::vector<float> gradient(6);
  const auto found = lns_softmax_cross_entropy(lns, logits, std::vector<std::int32_t>{0, 1}, 3, 0.1F, gradient);
  for (const float g : gradient) EXPECT_EQ(g, static_cast<float>(lns.decode(lns.encode(double{g}))));
  const double codes = found.loss_sum / std::numbers::ln2 * 128;
  EXPECT_NEAR(codes, std::round(codes), 1e-6);
  EXPECT_GT(codes, 128 * 128 / 2) << "a label that is e^-300 likely costs as much as the smallest number";
  EXPECT_EQ(gradient[5], 0.0F);
  EXPECT_FLOAT_EQ(gradient[3], static_cast<float>(lns.decode(lns.encode(double{0.1F}))));
}

}  // namespace
}  // namespace gradmeter::kernels
