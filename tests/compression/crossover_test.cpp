#include "compression/crossover.hpp"

#include <gtest/gtest.h>

namespace gradmeter::compression {
namespace {

constexpr CodecSpeeds speeds{{12e9}, {46e9}, {44e9}};

TEST(ExchangeSpeed, IsTheHarmonicSumOfWhatEachElementGoesThrough) {
  // On 4 ranks each element is encoded 1.25 times, added 0.75 times and decoded once.
  EXPECT_DOUBLE_EQ(exchange_speed(speeds, 4).value, 1 / (1.25 / 12e9 + 0.75 / 44e9 + 1 / 46e9));
  EXPECT_EQ(exchange_speed({{0}, {1e9}, {1e9}}, 4).value, 0);
}

TEST(CrossoverLink, IsTheSpeedAtWhichSavedBytesTakeAsLongAsTheArithmetic) {
  constexpr int ranks = 8;
  constexpr double n = 1e6, wire = 4.0625, baseline = 16;
  const double link = crossover_link(speeds, ranks, wire, baseline).value;
  const double saved = 2.0 * (ranks - 1) / ranks * n * (baseline - wire) / 8;
  const double arithmetic = 4 * n / exchange_speed(speeds, ranks).value;
  EXPECT_NEAR(saved / link, arithmetic, 1e-12);
}

TEST(CrossoverLink, IsNoneWhereNothingIsSaved) {
  EXPECT_EQ(crossover_link(speeds, 1, 4, 16).value, 0);
  EXPECT_EQ(crossover_link(speeds, 8, 16, 16).value, 0);
  EXPECT_EQ(crossover_link(speeds, 8, 33, 32).value, 0);
  EXPECT_GT(crossover_link(speeds, 8, 16, 32).value, 0);
}

}  // namespace
}  // namespace gradmeter::compression
