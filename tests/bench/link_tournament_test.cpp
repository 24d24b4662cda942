// SPDX-License-Identifier: Apache-2.0
#include "bench/links/tournament.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <utility>

namespace gradmeter::bench {
namespace {

class Tournament : public testing::TestWithParam<int> {};

TEST_P(Tournament, EveryPairMeetsOnceInRoundsOfDisjointPairs) {
  const int ranks = GetParam();
  std::set<std::pair<int, int>> met;
  for (int round = 0; round < tournament_rounds(ranks); ++round) {
    std::set<int> numbers;
    int idle = 0;
    for (int r = 0; r < ranks; ++r) {
      const int peer = tournament_partner(ranks, round, r);
      idle += peer < 0;
      if (peer < 0) continue;
      ASSERT_NE(peer, r);
      ASSERT_EQ(tournament_partner(ranks, round, peer), r) << "round " << round;
      EXPECT_EQ(tournament_pair(ranks, round, peer), tournament_pair(ranks, round, r));
      if (r > peer) continue;
      EXPECT_TRUE(met.insert({r, peer}).second) << r << " meets " << peer << " again in round " << round;
      EXPECT_TRUE(numbers.insert(tournament_pair(ranks, round, r)).second) << "a pair's number is there twice";
    }
    EXPECT_EQ(idle, ranks % 2);
    EXPECT_EQ(*numbers.begin(), 0);
    EXPECT_EQ(*numbers.rbegin(), ranks / 2 - 1) << "numbers of pairs have no gaps";
  }
  EXPECT_EQ(met.size(), static_cast<std::size_t>(ranks * (ranks - 1) / 2));
}

TEST_P(Tournament, TakesAsFewRoundsAsThereCanBe) {
  const int ranks = GetParam();
  EXPECT_EQ(tournament_rounds(ranks), ranks % 2 == 0 ? ranks - 1 : ranks);
}

INSTANTIATE_TEST_SUITE_P(Ranks, Tournament, testing::Values(2, 3, 4, 5, 6, 7, 8, 9, 16, 33, 64, 100));

}  // namespace
}  // namespace gradmeter::bench
