// SPDX-License-Identifier: Apache-2.0
#include "analysis/comparison.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "core/error.hpp"

namespace gradmeter::analysis {
namespace {

// scipy.stats.ttest_ind(log(b), log(a), equal_var=False), and the interval by scipy.stats.t.ppf, scipy 1.10.1.
TEST(Ratio, IsWelchsOfTheLogarithms) {
  const std::vector a{1.00, 1.02, 0.98, 1.05, 0.97}, b{1.10, 1.14, 1.09};
  const auto r = estimate_ratio(a, b);
  EXPECT_NEAR(r.ratio.value, 1.1058185952, 1e-8);
  EXPECT_NEAR(r.ratio.low, 1.0524560884, 1e-8);
  EXPECT_NEAR(r.ratio.high, 1.1618867323, 1e-8);
  EXPECT_NEAR(r.p_value, 0.0029287530, 1e-8);
}

TEST(Ratio, OfTheSidesChangedIsTheInverse) {
  const std::vector a{3.0, 3.3, 2.9}, b{2.0, 2.5, 2.2, 2.1};
  const auto r = estimate_ratio(a, b), s = estimate_ratio(b, a);
  EXPECT_NEAR(r.ratio.value * s.ratio.value, 1, 1e-12);
  EXPECT_NEAR(r.ratio.low * s.ratio.high, 1, 1e-12);
  EXPECT_NEAR(r.p_value, s.p_value, 1e-12);
}

TEST(Ratio, OfOneLaunchHasNoInterval) {
  const auto r = estimate_ratio(std::array{1.0, 1.1}, std::array{2.0});
  EXPECT_NEAR(r.ratio.value, 2 / std::sqrt(1.1), 1e-12);
  EXPECT_TRUE(std::isnan(r.ratio.low) && std::isnan(r.ratio.high) && std::isnan(r.p_value));
}

TEST(Ratio, OfLaunchesWithoutSpreadIsAPointOnlyWhereTheyAreEqual) {
  const auto r = estimate_ratio(std::array{2.0, 2.0}, std::array{2.0, 2.0, 2.0});
  EXPECT_EQ(r.p_value, 1);
  EXPECT_EQ(r.ratio.low, 1);
  const auto unlike = estimate_ratio(std::array{2.0, 2.0}, std::array{4.0, 4.0});
  EXPECT_EQ(unlike.ratio.value, 2);
  EXPECT_TRUE(std::isnan(unlike.ratio.low) && std::isnan(unlike.ratio.high) && std::isnan(unlike.p_value));
}

TEST(Ratio, RefusesWhatHasNoLogarithm) {
  EXPECT_THROW(estimate_ratio(std::array{1.0, 0.0}, std::array{1.0}), core::UsageError);
  EXPECT_THROW(estimate_ratio(std::array{1.0}, std::array{std::numeric_limits<double>::infinity()}), core::UsageError);
  EXPECT_THROW(estimate_ratio(std::array<double, 0>{}, std::array{1.0}), core::UsageError);
}

// R: p.adjust(c(0.01, 0.04, 0.03, 0.005, 0.8), "BH").
TEST(AdjustedP, AreBenjaminiAndHochbergs) {
  const auto q = adjust_p_values(std::array{0.01, 0.04, 0.03, 0.005, 0.8});
  const std::array expected{0.025, 0.05, 0.05, 0.025, 0.8};
  for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(q[i], expected[i], 1e-12) << i;
}

TEST(AdjustedP, LeaveOutWhatIsNotKnown) {
  const auto q = adjust_p_values(std::array{0.01, std::nan(""), 0.02});
  EXPECT_NEAR(q[0], 0.02, 1e-12);
  EXPECT_TRUE(std::isnan(q[1]));
  EXPECT_NEAR(q[2], 0.02, 1e-12);
}

TEST(LaunchesToDecide, FallWithTheDistanceAndRiseWithTheSpread) {
  const std::vector a{1.00, 1.04, 0.96}, near{1.03, 1.07, 0.99}, far{1.2, 1.25, 1.15};
  const auto few = launches_to_decide(a, far, 0.05), many = launches_to_decide(a, near, 0.05);
  EXPECT_LE(few, 3);
  EXPECT_GT(many, 10);
  EXPECT_EQ(launches_to_decide(std::array{1.0}, far, 0.05), 0);
}

}  // namespace
}  // namespace gradmeter::analysis
