// Which rank stands out.
#include "bench/own_times.hpp"

#include <gtest/gtest.h>

#include <limits>

namespace gradmeter::bench {
namespace {

TEST(StandingOut, IsTheRankWhoseIntervalIsAboveAllOthers) {
  const OwnTime usual{.median = 1, .low = 0.9, .high = 1.1}, slow{.median = 2, .low = 1.8, .high = 2.2};
  const OwnTime vague{.median = 2, .low = 0, .high = std::numeric_limits<double>::infinity()};
  const auto found = [](std::vector<OwnTime> ranks) { return standing_out(ranks).value_or(-1); };
  EXPECT_EQ(found({usual, usual, slow}), 2);
  EXPECT_EQ(found({slow, usual}), 0);
  EXPECT_EQ(found({usual, usual}), -1);
  EXPECT_EQ(found({usual, slow, slow}), -1) << "two alike";
  EXPECT_EQ(found({usual, {.median = 1.2, .low = 1.05, .high = 1.3}}), -1) << "intervals overlap";
  EXPECT_EQ(found({usual, vague}), -1);
  EXPECT_EQ(found({vague, slow}), -1) << "too few samples to say";
  EXPECT_EQ(found({slow}), -1);
  EXPECT_EQ(found({}), -1);
}

}  // namespace
}  // namespace gradmeter::bench
