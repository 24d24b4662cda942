// SPDX-License-Identifier: Apache-2.0
#include "core/random.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <set>
#include <stdexcept>
#include <vector>

#include "support/every_target.hpp"

namespace gradmeter::core {
namespace {

// Known answers: Random123's kat_vectors, philox4x32 with 10 rounds.
TEST(Random, PhiloxGivesThePublishedAnswers) {
  constexpr std::uint32_t ones = 0xffffffff;
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}), (PhiloxBlock{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox4x32({ones, ones, ones, ones}, {ones, ones}),
            (PhiloxBlock{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (PhiloxBlock{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Random, SeedStreamAndPlaceAllMatterUpToTheirHighestBit) {
  const std::uint64_t high = std::uint64_t{1} << 63;
  const std::set<std::uint64_t> draws{Random(1, 2).bits(3),        Random(1 | high, 2).bits(3),
                                      Random(1, 2 | high).bits(3), Random(1, 2).bits(3 | high),
                                      Random(2, 1).bits(3),        Random(1, 3).bits(2)};
  EXPECT_EQ(draws.size(), 6u);
  EXPECT_EQ(Random(1, 2).bits(3), Random(1, 2).bits(3));
}

// Across a change of the counter's upper word, and for every remainder of a vector.
TEST(Random, ManyDrawsAreTheSameOnEveryInstructionSet) {
  test::on_every_target([] {
    const Random random(0x243f6a8885a308d3, 0x13198a2e03707344);
    for (const std::uint64_t first : {std::uint64_t{0}, (std::uint64_t{1} << 32) - 7, ~std::uint64_t{0} - 20}) {
      for (std::size_t n = 0; n <= 19; ++n) {
        std::vector<std::uint64_t> many(n);
        random.bits(first, many);
        for (std::size_t i = 0; i < n; ++i) EXPECT_EQ(many[i], random.bits(first + i)) << first << " + " << i;
      }
    }
  });
}

TEST(Random, UniformsFillTheUnitIntervalEvenly) {
  const Random random(7, 0);
  constexpr std::size_t kDraws = 100000, kBins = 10;
  std::array<std::size_t, kBins> bins{};
  for (std::size_t i = 0; i < kDraws; ++i) {
    const double x = random.uniform(i);
    ASSERT_GE(x, 0);
    ASSERT_LT(x, 1);
    ++bins[static_cast<std::size_t>(x * kBins)];
  }
  // Chi-square with 9 degrees of freedom: 27.9 is the 99.9 % point.
  double chi_square = 0;
  for (const std::size_t n : bins) chi_square += std::pow(static_cast<double>(n) - 1e4, 2) / 1e4;
  EXPECT_LT(chi_square, 27.9);
}

TEST(Random, GaussiansHaveMeanZeroVarianceOneAndLightTails) {
  const Random random(7, 1);
  constexpr std::size_t kDraws = 100000;
  double sum = 0, squares = 0, fourths = 0;
  for (std::size_t i = 0; i < kDraws; ++i) {
    const double x = random.gaussian(i);
    ASSERT_LE(std::fabs(x), 6);
    sum += x;
    squares += x * x;
    fourths += x * x * x * x;
  }
  EXPECT_NEAR(sum / kDraws, 0, 0.015);
  EXPECT_NEAR(squares / kDraws, 1, 0.02);
  EXPECT_NEAR(fourths / kDraws, 2.9, 0.1);  // 3 - 1.2 / 12 for a sum of twelve uniforms
}

TEST(Random, GaussiansAreApartFromUniforms) {
  const Random random(7, 2);
  double sum = 0;
  for (std::size_t i = 0; i < 12; ++i) sum += random.uniform(i);
  EXPECT_NE(random.gaussian(0), sum - 6);
}

TEST(Random, DrawsBelowABoundStayBelowItAndReachAll) {
  const Random random(3, 0);
  std::array<std::size_t, 7> seen{};
  for (std::size_t i = 0; i < 7000; ++i) ++seen.at(random.below(i, 7));
  for (const std::size_t n : seen) EXPECT_NEAR(static_cast<double>(n), 1000, 150);
  for (std::size_t i = 0; i < 100; ++i) EXPECT_EQ(random.below(i, 1), 0u);
  // A 64-bit bound is used in full: half of the draws lie above 2^62.
  std::size_t upper = 0;
  for (std::size_t i = 0; i < 1000; ++i) upper += random.below(i, std::uint64_t{1} << 63) >> 62;
  EXPECT_NEAR(static_cast<double>(upper), 500, 80);
}

TEST(Permutation, IsABijection) {
  for (const std::uint64_t n : {1u, 2u, 3u, 4u, 5u, 10u, 1000u, 65536u, 65537u}) {
    const Permutation permutation(n, 42);
    std::vector<bool> hit(n);
    for (std::uint64_t i = 0; i < n; ++i) {
      const std::uint64_t image = permutation(i);
      ASSERT_LT(image, n);
      ASSERT_FALSE(hit[image]) << n << ' ' << i;
      hit[image] = true;
    }
  }
}

TEST(Permutation, DependsOnTheSeedAndLeavesFewPlacesFixed) {
  const Permutation one(1000, 1), other(1000, 2);
  std::size_t fixed = 0, equal = 0;
  for (std::uint64_t i = 0; i < 1000; ++i) {
    fixed += one(i) == i;
    equal += one(i) == other(i);
  }
  EXPECT_LT(fixed, 8u);  // Poisson with mean 1
  EXPECT_LT(equal, 8u);
}

TEST(Permutation, AllOrdersOfThreeOccur) {
  std::set<std::vector<std::uint64_t>> orders;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const Permutation p(3, seed);
    orders.insert({p(0), p(1), p(2)});
  }
  EXPECT_EQ(orders.size(), 6u);
}

TEST(Permutation, APlaceOutsideIsRefused) {
  EXPECT_THROW(Permutation(5, 1)(5), std::out_of_range);
  EXPECT_THROW(Permutation(0, 1)(0), std::out_of_range);
  EXPECT_LT(Permutation(std::uint64_t{1} << 63, 1)(12345), std::uint64_t{1} << 63);
}

}  // namespace
}  // namespace gradmeter::core
