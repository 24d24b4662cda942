// SPDX-License-Identifier: Apache-2.0
#include "bench/doctor/checkup.hpp"

#include <gtest/gtest.h>

namespace gradmeter::bench {
namespace {

TEST(CrowdingFindings, AsManyWorkersAsCoresThatHaveHalfOfThemStandOut) {
  const auto found = crowding_findings({{1, 50e9, 1}, {2, 25.5e9, 0.51}, {4, 12e9, 0.24}}, 2);
  ASSERT_EQ(found.size(), 1u) << "more workers than cores are expected to be slow";
  EXPECT_EQ(found[0].what, "2 workers on 2 cores reach 51 % each of what one alone does");
  EXPECT_NE(found[0].why.find("the cores are shared with others or are threads of one core"), std::string::npos);
  EXPECT_FALSE(found[0].remedy.empty());
}

TEST(CrowdingFindings, CoresOfTheirOwnAndALittleLessClockDoNot) {
  EXPECT_TRUE(crowding_findings({{1, 50e9, 1}, {2, 49e9, 0.98}, {4, 24e9, 0.48}}, 2).empty());
  EXPECT_TRUE(crowding_findings({{1, 50e9, 1}, {64, 40e9, 0.8}, {128, 20e9, 0.4}}, 64).empty());
  EXPECT_TRUE(crowding_findings({{1, 50e9, 1}, {2, 25e9, 0.5}}, 1).empty()) << "one core has nobody to share with";
}

TEST(ShareOfARank, GoesByTheNumberOfRanks) {
  const std::vector<Crowding> measured{{1, 50e9, 1}, {2, 42e9, 0.84}, {4, 21e9, 0.42}};
  EXPECT_NEAR(share_of_a_rank(measured, 4), 0.42, 1e-12);
  EXPECT_NEAR(share_of_a_rank(measured, 7), 0.24, 1e-12) << "seven on two cores have at most 2/7 each";
  EXPECT_NEAR(share_of_a_rank(measured, 3), 0.56, 1e-12);
}

TEST(Binding, IsTooNarrowForMoreRanksThanItsUnits) {
  const std::vector<std::string> sockets{"0-3", "0-3", "4-7", "4-7"}, same(3, "0-1");
  EXPECT_FALSE(is_bound_too_narrowly(sockets, "0-3", 4)) << "two ranks on four cores have a core each";
  EXPECT_TRUE(is_bound_too_narrowly(same, "0-1", 2));
}

TEST(ShmFindings, AFullOneIsFoundAndNoneIsNot) {
  EXPECT_TRUE(shm_findings(std::nullopt).empty());
  EXPECT_TRUE(shm_findings(std::size_t{1} << 30).empty());
  EXPECT_EQ(shm_findings(std::size_t{1} << 20).size(), 1u);
  EXPECT_EQ(shm_findings(0).size(), 1u) << "no room is less than a little";
}

TEST(SteadinessFindings, AMedianOrAFifthOfTheRoundsAboveATenthStandOut) {
  EXPECT_TRUE(steadiness_findings({.value = 0.97, .rounds = 400, .disturbed = 12}).empty());
  EXPECT_TRUE(steadiness_findings({}).empty());
  const auto slow = steadiness_findings({.value = 0.8, .rounds = 400, .disturbed = 300});
  ASSERT_EQ(slow.size(), 1u);
  EXPECT_EQ(slow[0].what,
            "the same work takes 1.25 times its best in the median, and over 1.1 times in 75 % of the rounds");
  EXPECT_EQ(steadiness_findings({.value = 0.95, .rounds = 100, .disturbed = 30}).size(), 1u);
}

}  // namespace
}  // namespace gradmeter::bench
