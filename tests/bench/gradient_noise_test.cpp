// SPDX-License-Identifier: Apache-2.0
#include "bench/train/metrics.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <stdexcept>

#include "core/random.hpp"

namespace gradmeter::bench {
namespace {

constexpr std::size_t dimensions = 50;

/// Gradients of samples with a known mean and a diagonal covariance, a different variance in every direction.
struct Population {
  double mean(std::size_t i) const { return 0.02 * (static_cast<double>(i % 7) - 3); }
  double deviation(std::size_t i) const { return 0.2 + 0.01 * static_cast<double>(i); }
  double gradient_square() const {
    double sum = 0;
    for (std::size_t i = 0; i < dimensions; ++i) sum += mean(i) * mean(i);
    return sum;
  }
  double variance() const {
    double sum = 0;
    for (std::size_t i = 0; i < dimensions; ++i) sum += deviation(i) * deviation(i);
    return sum;
  }
};

/// One step of `ranks` ranks. The mean of `batch` normal samples is drawn at once. `shared`: all ranks have the same
/// samples, as if the data had not been divided.
GradientNorms step(const Population& p, std::uint64_t number, int ranks, std::size_t batch, bool shared = false) {
  std::vector<double> mean(dimensions);
  GradientNorms n;
  for (int r = 0; r < ranks; ++r) {
    const core::Random random(number, shared ? 0 : static_cast<std::uint64_t>(r));
    for (std::size_t i = 0; i < dimensions; ++i) {
      const double g = p.mean(i) + p.deviation(i) * random.gaussian(i) / std::sqrt(static_cast<double>(batch));
      n.part_square += g * g / ranks;
      mean[i] += g / ranks;
    }
  }
  for (const double x : mean) n.mean_square += x * x;
  return n;
}

NoiseScale measured(int ranks, std::size_t batch, std::size_t steps, bool shared = false) {
  NoiseScale scale(batch, batch * static_cast<std::size_t>(ranks));
  for (std::size_t s = 0; s < steps; ++s) scale.add(step({}, s, ranks, batch, shared));
  return scale;
}

TEST(GradientNoise, FindsTheGradientAndItsVariance) {
  const Population truth;
  for (const int ranks : {2, 4}) {
    for (const std::size_t batch : {8u, 64u}) {
      const NoiseScale scale = measured(ranks, batch, 1000);
      EXPECT_EQ(scale.steps(), 1000u);
      EXPECT_NEAR(scale.gradient_square() / truth.gradient_square(), 1, 0.1) << ranks << " x " << batch;
      EXPECT_NEAR(scale.variance() / truth.variance(), 1, 0.03) << ranks << " x " << batch;
      ASSERT_TRUE(scale.samples().has_value());
      EXPECT_NEAR(*scale.samples() * truth.gradient_square() / truth.variance(), 1, 0.12) << ranks << " x " << batch;
    }
  }
}

// What the estimate corrects: the plain norm of the mean gradient still holds the noise of its batch.
TEST(GradientNoise, ThePlainNormIsTooLarge) {
  double plain = 0;
  for (std::uint64_t s = 0; s < 500; ++s) plain += step({}, s, 2, 8).mean_square / 500;
  EXPECT_GT(plain, 5 * Population{}.gradient_square());
}

// The control: ranks with the same samples have one gradient, which looks like no noise at all.
TEST(GradientNoise, RanksWithTheSameSamplesShowNoNoise) {
  const NoiseScale scale = measured(4, 8, 100, true);
  EXPECT_NEAR(scale.variance(), 0, 1e-9);
  EXPECT_GT(scale.gradient_square(), 5 * Population{}.gradient_square());
}

TEST(GradientNoise, IsExactWithoutNoiseInTheNorms) {
  // ‖G‖² = 4 and tr Σ = 96: 4 + 96/8 and 4 + 96/32.
  NoiseScale scale(8, 32);
  EXPECT_FALSE(scale.samples().has_value());
  scale.add({.part_square = 16, .mean_square = 7});
  EXPECT_DOUBLE_EQ(scale.gradient_square(), 4);
  EXPECT_DOUBLE_EQ(scale.variance(), 96);
  EXPECT_DOUBLE_EQ(scale.samples().value(), 24);
}

TEST(GradientNoise, AGradientThatNoiseHidesHasNoScale) {
  NoiseScale scale(8, 16);
  scale.add({.part_square = 16, .mean_square = 7});  // less than half: the parts point away from each other
  EXPECT_LT(scale.gradient_square(), 0);
  EXPECT_FALSE(scale.samples().has_value());
}

TEST(GradientNoise, OneBatchSizeIsRefused) {
  EXPECT_THROW(NoiseScale(8, 8), std::invalid_argument);
  EXPECT_THROW(NoiseScale(0, 8), std::invalid_argument);
}

}  // namespace
}  // namespace gradmeter::bench
