// SPDX-License-Identifier: Apache-2.0
#include "compression/crossover.hpp"

#include <gtest/gtest.h>

namespace gradmeter::compression {
namespace {

constexpr core::CodecRates rates{.encode = 12e9, .decode = 46e9, .add = 44e9};

TEST(ExchangeSpeed, IsTheHarmonicSumOfWhatEachElementGoesThrough) {
  // On 4 ranks each element is encoded 1.25 times, added 0.75 times and decoded once.
  EXPECT_DOUBLE_EQ(coding_rate(rates, 4).value, 1 / (1.25 / 12e9 + 0.75 / 44e9 + 1 / 46e9));
  EXPECT_EQ(coding_rate({.encode = 0, .decode = 1e9, .add = 1e9}, 4).value, 0);
}

TEST(CrossoverLink, IsTheSpeedAtWhichSavedBytesTakeAsLongAsTheArithmetic) {
  constexpr int ranks = 8;
  constexpr double n = 1e6, wire = 4.0625, baseline = 16;
  const double link = break_even_rate(rates, ranks, wire, baseline).value;
  const double saved = 2.0 * (ranks - 1) / ranks * n * (baseline - wire) / 8;
  const double arithmetic = 4 * n / coding_rate(rates, ranks).value;
  EXPECT_NEAR(saved / link, arithmetic, 1e-12);
}

TEST(CodecEstimate, SendsAtTheLinkOfTheLastRankAndThenComputes) {
  core::Machine m;
  m.codecs["q8"] = rates;
  m.within_node.bandwidth = {{.bytes_per_s = 1e10}};
  m.between_nodes.bandwidth = {{0, 1e8}, {1000, 1e9}};
  const auto of = [&](std::string_view codec) { return estimate(m, codec, 4, 4000, 8); };
  const double arithmetic = 16000 / coding_rate(rates, 4).value;
  EXPECT_DOUBLE_EQ(of("q8").predicted_s, 6000 / 1e10 + arithmetic);
  m.ranks_per_node = 2;
  EXPECT_EQ(of("q8").link.value, 1e9) << "messages of a rank's chunk";
  EXPECT_DOUBLE_EQ(of("q8").predicted_s, 6000 / 1e9 + arithmetic);
  EXPECT_EQ(of("q8").break_even, break_even_rate(rates, 4, 8, 32));
  EXPECT_THROW(of("q4"), std::out_of_range);
}

TEST(CrossoverLink, IsNoneWhereNothingIsSaved) {
  EXPECT_EQ(break_even_rate(rates, 1, 4, 16).value, 0);
  EXPECT_EQ(break_even_rate(rates, 8, 16, 16).value, 0);
  EXPECT_EQ(break_even_rate(rates, 8, 33, 32).value, 0);
  EXPECT_GT(break_even_rate(rates, 8, 16, 32).value, 0);
}

}  // namespace
}  // namespace gradmeter::compression
