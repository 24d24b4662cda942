// SPDX-License-Identifier: Apache-2.0
// Which rank is the slowest.
#include "bench/engine/rounds.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace gradmeter::bench {
namespace {

TEST(Straggler, IsTheRankThatIsATenthSlowerThanTheMedianRank) {
  EXPECT_EQ(straggler(std::vector<double>{1, 1.09, 1}), std::nullopt);
  EXPECT_EQ(straggler(std::vector<double>{1, 1, 1.2}), 2);
  EXPECT_EQ(straggler(std::vector<double>{1.2, 1}), 0) << "of two the faster is the median rank";
  EXPECT_EQ(straggler(std::vector<double>{1, 1.15, 1.2}), std::nullopt) << "the middle one is slow as well";
  EXPECT_EQ(straggler(std::vector<double>{5}), std::nullopt);
}

TEST(Straggler, IsSlowBeyondItsIntervalAndNotByALittle) {
  const OwnTime usual{.median = 1, .low = 0.9, .high = 1.1}, slow{.median = 2, .low = 1.8, .high = 2.2};
  const OwnTime vague{.median = 2, .low = 0, .high = std::numeric_limits<double>::infinity()};
  const OwnTime exact{.median = 1, .low = 0.999, .high = 1.001}, later{.median = 1.08, .low = 1.079, .high = 1.081};
  const auto found = [](std::vector<OwnTime> ranks) { return straggler(ranks).value_or(-1); };
  EXPECT_EQ(found({usual, usual, slow}), 2);
  EXPECT_EQ(found({slow, usual}), 0);
  EXPECT_EQ(found({usual, usual}), -1);
  EXPECT_EQ(found({exact, exact, later}), -1) << "its interval is far above, and the difference small";
  EXPECT_EQ(found({exact, exact, {.median = 1.12, .low = 1.119, .high = 1.121}}), 2);
  EXPECT_EQ(found({usual, {.median = 1.2, .low = 1.05, .high = 1.3}}), -1) << "intervals overlap";
  EXPECT_EQ(found({usual, slow, slow}), -1) << "most ranks are as slow";
  EXPECT_EQ(found({usual, vague}), -1);
  EXPECT_EQ(found({vague, slow}), -1) << "too few samples to say";
  const OwnTime unknown{.median = NAN, .low = 0, .high = INFINITY};
  EXPECT_EQ(found({usual, unknown, usual, slow}), -1) << "an unknown time is not a short one";
  EXPECT_EQ(found({usual, usual, usual, slow, unknown}), -1);
  EXPECT_EQ(found({slow}), -1);
  EXPECT_EQ(found({}), -1);
}

}  // namespace
}  // namespace gradmeter::bench
