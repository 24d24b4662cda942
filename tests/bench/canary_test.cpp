#include "bench/canary.hpp"

#include <gtest/gtest.h>

namespace gradmeter::bench {
namespace {

CanaryTimes times_of(std::initializer_list<double> seconds) {
  CanaryTimes t;
  for (const double s : seconds) t.add(s);
  return t;
}

TEST(CanaryTimes, ARatioIsAgainstTheBestOfTheRunAlsoOfALaterOne) {
  CanaryTimes t = times_of({1.2e-3, 1.08e-3});
  EXPECT_DOUBLE_EQ(t.ratio(0), 1.2 / 1.08);
  EXPECT_DOUBLE_EQ(t.ratio(1), 1);
  EXPECT_FALSE(t.disturbed(1));
  t.add(0.96e-3);
  EXPECT_DOUBLE_EQ(t.ratio(0), 1.25);
  EXPECT_DOUBLE_EQ(t.ratio(1), 1.125);
  EXPECT_DOUBLE_EQ(t.ratio(2), 1);
}

TEST(CanaryTimes, OneLuckyRoundOfManyDoesNotDisturbTheOthers) {
  CanaryTimes t = times_of({0.5});
  for (int i = 0; i < 29; ++i) t.add(1);
  EXPECT_DOUBLE_EQ(t.ratio(1), 1);
  EXPECT_FALSE(t.disturbed(1));
  EXPECT_DOUBLE_EQ(t.steadiness(), 1);
  t.add(0.5), t.add(0.5), t.add(0.5);
  EXPECT_TRUE(t.disturbed(1)) << "what is reached again and again is the machine's state";
}

TEST(CanaryTimes, ARoundIsDisturbedFromATenthOn) {
  const CanaryTimes t = times_of({1, 1.09, 1.11, 30});
  EXPECT_FALSE(t.disturbed(0));
  EXPECT_FALSE(t.disturbed(1));
  EXPECT_TRUE(t.disturbed(2));
  EXPECT_TRUE(t.disturbed(3));
}

TEST(CanaryTimes, SteadinessIsTheBestOfTheRunOverTheMedianOfSomeRounds) {
  const CanaryTimes t = times_of({1, 1, 1, 2, 4, 2});
  EXPECT_DOUBLE_EQ(t.steadiness(), 1 / 1.5);
  EXPECT_DOUBLE_EQ(t.steadiness(3), 0.5) << "a point that ran while the machine was slow, against the run's best";
  EXPECT_DOUBLE_EQ(t.steadiness(6), 1) << "no round, nothing known against it";
  EXPECT_DOUBLE_EQ(times_of({}).steadiness(), 1);
  EXPECT_DOUBLE_EQ(times_of({3, 3, 3}).steadiness(), 1);
}

}  // namespace
}  // namespace gradmeter::bench
