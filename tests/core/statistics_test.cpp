// SPDX-License-Identifier: Apache-2.0
#include "core/statistics.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>

#include "core/random.hpp"
#include "core/stopping_rule.hpp"
#include "support.hpp"

namespace gradmeter::core {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

std::vector<double> counted(std::size_t n, double first = 0, double step = 1) {
  std::vector<double> values(n);
  for (std::size_t i = 0; i < n; ++i) values[i] = first + step * static_cast<double>(i);
  return values;
}

TEST(Statistics, MedianOfAnOddCountIsTheMiddleOne) { EXPECT_EQ(median(std::vector{3., 1., 2.}), 2); }
TEST(Statistics, MedianOfAnEvenCountIsTheMidpoint) { EXPECT_EQ(median(std::vector{4., 1., 3., 2.}), 2.5); }

TEST(Statistics, QuantilesInterpolateAsRsTypeSeven) {
  const std::vector<double> sorted{1, 2, 4, 8};
  EXPECT_DOUBLE_EQ(quantile(sorted, 0), 1);
  EXPECT_DOUBLE_EQ(quantile(sorted, 0.25), 1.75);
  EXPECT_DOUBLE_EQ(quantile(sorted, 0.5), 3);
  EXPECT_DOUBLE_EQ(quantile(sorted, 0.75), 5);
  EXPECT_DOUBLE_EQ(quantile(sorted, 0.95), 7.4);
  EXPECT_DOUBLE_EQ(quantile(sorted, 1), 8);
  EXPECT_THAT(refusal([] { quantile({}, 0.5); }), HasSubstr("no samples"));
  EXPECT_THAT(refusal([&] { quantile(sorted, 1.5); }), HasSubstr("from 0 to 1"));
}

TEST(Statistics, ASummaryHoldsTheHandValues) {
  const Summary s = summarise(std::vector{10., 9., 8., 7., 6., 5., 4., 3., 2., 1.});
  EXPECT_EQ(s.n, 10u);
  EXPECT_DOUBLE_EQ(s.min, 1);
  EXPECT_DOUBLE_EQ(s.q1, 3.25);
  EXPECT_DOUBLE_EQ(s.median, 5.5);
  EXPECT_DOUBLE_EQ(s.q3, 7.75);
  EXPECT_DOUBLE_EQ(s.p95, 9.55);
  EXPECT_DOUBLE_EQ(s.p99, 9.91);
  EXPECT_DOUBLE_EQ(s.max, 10);
  EXPECT_DOUBLE_EQ(s.ci95_low, 2);
  EXPECT_DOUBLE_EQ(s.ci95_high, 9);
  EXPECT_DOUBLE_EQ(s.relative_half_width(), 3.5 / 5.5);
  EXPECT_EQ(s.stop, Stop::none);
}

TEST(Statistics, FiveSamplesHaveNoInterval) {
  const Summary s = summarise(counted(5));
  EXPECT_TRUE(std::isnan(s.ci95_low));
  EXPECT_TRUE(std::isnan(s.ci95_high));
  EXPECT_EQ(s.relative_half_width(), std::numeric_limits<double>::infinity());
}

TEST(Statistics, EmptyOrNonFiniteSamplesAreRefused) {
  EXPECT_THAT(refusal([] { summarise(std::vector<double>{}); }), HasSubstr("no samples"));
  EXPECT_THAT(refusal([] { summarise(std::vector{1., kNan}); }), HasSubstr("sample 1 of 2 is nan"));
  EXPECT_THAT(refusal([] { median(std::vector<double>{INFINITY}); }), HasSubstr("must be finite"));
}

TEST(Statistics, RelativeWidthOfAZeroMedianIsNeverSmallByAccident) {
  EXPECT_EQ((Summary{.median = 0, .ci95_low = 0, .ci95_high = 0}.relative_half_width()), 0);
  EXPECT_EQ((Summary{.median = 0, .ci95_low = -1, .ci95_high = 1}.relative_half_width()),
            std::numeric_limits<double>::infinity());
  EXPECT_DOUBLE_EQ((Summary{.median = -2, .ci95_low = -3, .ci95_high = -1}.relative_half_width()), 0.5);
}

// Reference: the binomial distribution function in 50 digits (largest k with P(X <= k) <= 0.025).
TEST(Statistics, IntervalRanksAreThoseOfTheBinomialTable) {
  struct Row {
    std::size_t n, low;
  };
  for (const auto [n, low] :
       {Row{6, 0}, Row{7, 0}, Row{8, 0}, Row{9, 1}, Row{10, 1}, Row{11, 1}, Row{20, 5}, Row{25, 7}, Row{99, 39},
        Row{100, 39}, Row{101, 40}, Row{1000, 468}, Row{100000, 49689}, Row{1000000, 499019}}) {
    EXPECT_EQ(median_interval_indices(n), std::pair(low, n - 1 - low)) << n;
  }
  for (std::size_t n = 0; n < 6; ++n) EXPECT_FALSE(median_interval_indices(n)) << n;
}

/// Share of trials in which the interval holds the true median of an exponential distribution.
double coverage(std::size_t n, std::size_t narrower_by) {
  constexpr std::size_t kTrials = 4000;
  const Random random(2024, n);
  const auto [low, high] = median_interval_indices(n).value();
  std::size_t held = 0;
  std::vector<double> samples(n);
  for (std::size_t trial = 0; trial < kTrials; ++trial) {
    for (std::size_t i = 0; i < n; ++i) samples[i] = -std::log1p(-random.uniform(trial * n + i));
    std::sort(samples.begin(), samples.end());
    const double truth = std::log(2.0);
    held += samples[low + narrower_by] <= truth && truth <= samples[high - narrower_by];
  }
  return static_cast<double>(held) / kTrials;
}

TEST(Statistics, TheIntervalHoldsTheTrueMedianInNinetyFivePercentOfTrials) {
  // 0.01 is three standard errors of 4000 trials. One rank narrower must miss the mark: the interval is not just wide.
  for (const std::size_t n : {6u, 10u, 25u, 99u}) {
    EXPECT_GE(coverage(n, 0), 0.95 - 0.01) << n;
    EXPECT_LT(coverage(n, 1), 0.95) << n;
  }
}

/// Each sample a block of its own.
Blocks each(std::span<const double> samples) {
  Blocks blocks;
  for (const double& s : samples) blocks.add({&s, 1});
  return blocks;
}
constexpr Seconds kLong{10};

/// Share of trials in which the interval of blocks holds the true median of skewed times.
double coverage_by_blocks(std::size_t blocks, std::size_t length) {
  constexpr std::size_t kTrials = 2000;
  const Random random(2025, 1000 * blocks + length);
  const double truth = 1 + 0.3 * std::log(2.0);
  std::size_t held = 0, at = 0;
  std::vector<double> block(length);
  for (std::size_t trial = 0; trial < kTrials; ++trial) {
    Blocks all;
    for (std::size_t b = 0; b < blocks; ++b) {
      for (double& time : block) time = 1 - 0.3 * std::log1p(-random.uniform(at++));
      all.add(block);
    }
    const Summary s = summarise(all);
    held += s.ci95_low <= truth && truth <= s.ci95_high;
  }
  return static_cast<double>(held) / kTrials;
}

// The mean of two skewed times lies above their median more often than below it.
TEST(Blocks, TheIntervalHoldsTheTrueMedianWhateverTheirLength) {
  for (const std::size_t blocks : {8u, 20u, 50u, 200u}) {
    for (const std::size_t length : {1u, 2u, 3u, 4u, 5u}) {
      // 0.015 is three standard errors of 2000 trials.
      EXPECT_GE(coverage_by_blocks(blocks, length), 0.95 - 0.015) << blocks << " blocks of " << length;
    }
  }
}

TEST(Blocks, TheMedianOfAnEvenNumberLeavesTheLastSampleOut) {
  EXPECT_EQ(block_median(std::vector{3.0}), 3);
  EXPECT_EQ(block_median(std::vector{3.0, 1.0}), 3);
  EXPECT_EQ(block_median(std::vector{4.0, 1.0, 2.0}), 2);
  EXPECT_EQ(block_median(std::vector{4.0, 1.0, 2.0, 9.0}), 2);
  EXPECT_THROW(block_median(std::vector<double>{}), UsageError);
  EXPECT_THROW(block_median(std::vector{1.0, std::nan("")}), UsageError);
}

TEST(Blocks, KeepTheirSamplesAndMedians) {
  Blocks blocks;
  blocks.add(std::vector{1., 3., 2.});
  blocks.add({});
  blocks.add(std::vector{7.});
  EXPECT_THAT(blocks.samples(), ElementsAre(1, 3, 2, 7));
  EXPECT_THAT(blocks.medians(), ElementsAre(2, 7));
  EXPECT_THAT(blocks.block(0), ElementsAre(1, 3, 2));
  EXPECT_THAT(blocks.block(1), ElementsAre(7));
}

// A thousand equal samples in each block tell nothing of how blocks differ.
TEST(Blocks, TheIntervalIsThatOfTheBlocksMedians) {
  Blocks blocks;
  for (int i = 1; i <= 8; ++i) blocks.add(std::vector<double>(1000, i));
  const Summary s = summarise(blocks);
  EXPECT_EQ(s.n, 8000u);
  EXPECT_EQ(s.median, 4.5);
  EXPECT_EQ(s.ci95_low, 1);
  EXPECT_EQ(s.ci95_high, 8);
  EXPECT_LT(summarise(blocks.samples()).relative_half_width(), s.relative_half_width());
}

void expect_ascending(const Summary& s) {
  const std::array quantiles{s.min, s.q1, s.median, s.q3, s.p95, s.p99, s.max};
  EXPECT_TRUE(std::is_sorted(quantiles.begin(), quantiles.end())) << testing::PrintToString(quantiles);
  EXPECT_LE(s.ci95_low, s.median);
  EXPECT_GE(s.ci95_high, s.median);
}

// A disturbed machine makes few samples in as much time. Counted by samples, 97 % are fast; by blocks, most are slow.
TEST(Blocks, QuantilesAreOfOneDistributionWhereSlowBlocksAreShort) {
  Blocks blocks;
  for (int i = 0; i < 3; ++i) blocks.add(std::vector<double>(1000, 1.0));
  for (int i = 0; i < 5; ++i) blocks.add(std::vector<double>(20, 2.0));
  const Summary s = summarise(blocks);
  expect_ascending(s);
  EXPECT_EQ(s.q1, 1.0);
  EXPECT_EQ(s.median, 2.0);
  EXPECT_EQ(s.p95, 2.0);
  EXPECT_EQ(s.n, 3100u);
}

TEST(Blocks, QuantilesAscendAndTheIntervalHoldsTheMedianWhateverTheBlocks) {
  const Random random(7, 44);
  std::size_t at = 0;
  for (int trial = 0; trial < 200; ++trial) {
    Blocks blocks;
    const std::size_t count = 6 + trial % 9;
    for (std::size_t b = 0; b < count; ++b) {
      const double level = std::exp(2 * random.uniform(at++));
      std::vector<double> block(1 + static_cast<std::size_t>(50 * random.uniform(at++) / level));
      for (double& x : block) x = level - std::log1p(-random.uniform(at++));
      blocks.add(block);
    }
    expect_ascending(summarise(blocks));
  }
}

TEST(Blocks, OfEqualLengthHaveTheQuantilesOfTheirSamples) {
  const Random random(3, 5);
  Blocks blocks;
  for (std::size_t b = 0; b < 9; ++b) {
    std::vector<double> block(7);
    for (std::size_t i = 0; i < block.size(); ++i) block[i] = random.uniform(7 * b + i);
    blocks.add(block);
  }
  const Summary of_blocks = summarise(blocks), of_samples = summarise(blocks.samples());
  for (const auto part :
       {&Summary::min, &Summary::q1, &Summary::median, &Summary::q3, &Summary::p95, &Summary::p99, &Summary::max}) {
    EXPECT_EQ(of_blocks.*part, of_samples.*part);
  }
}

// Two launches of the same product: each one's blocks agree within 0.2 %, and the two are 1.4 % apart.
TEST(Blocks, ThatAgreeKnowNoMoreThanOneLaunchCan) {
  const auto launch = [](double time) {
    Blocks blocks;
    for (int b = 0; b < 20; ++b) blocks.add(std::vector<double>(5, time * (b % 2 == 0 ? 1.001 : 0.999)));
    return summarise(blocks);
  };
  const Summary a = launch(6.242), b = launch(6.332);
  EXPECT_GE(a.ci95_high, b.ci95_low);
  EXPECT_NEAR(a.relative_half_width(), 0.01, 1e-4);
  EXPECT_LT(a.ci95_high, launch(6.5).ci95_low);
}

TEST(Blocks, FewerThanSixHaveNoInterval) {
  const std::vector<double> five(5, 1.0);
  EXPECT_TRUE(std::isnan(summarise(each(five)).ci95_low));
  EXPECT_TRUE(std::isnan(summarise(each(five)).ci95_high));
}

TEST(StoppingRule, AsksForSamplesBlocksAndTimeBeforeAnInterval) {
  const StoppingRule rule{.min_samples = 10, .min_blocks = 8, .min_time = Seconds{0.3}};
  Blocks few;
  for (int i = 0; i < 7; ++i) few.add(std::vector<double>(100, 1.0));
  EXPECT_EQ(rule.decide(few, kLong, Seconds{4.9}), Stop::none) << "7 blocks";
  few.add(std::vector{1.0});
  EXPECT_EQ(rule.decide(few, kLong, Seconds{0}), Stop::interval);
  EXPECT_EQ(rule.decide(few, Seconds{0.29}, Seconds{0}), Stop::none) << "all within a moment";
  EXPECT_EQ(rule.decide(each(std::vector<double>(9, 1.0)), kLong, Seconds{0}), Stop::none) << "9 samples";
}

TEST(StoppingRule, TheBudgetEndsItOnceThereIsAnInterval) {
  const StoppingRule rule{.min_samples = 10, .budget = Seconds{5}};
  EXPECT_EQ(rule.decide({}, kLong, Seconds{50}), Stop::none);
  EXPECT_EQ(rule.decide(each(counted(5)), kLong, Seconds{50}), Stop::none);
  EXPECT_EQ(rule.decide(each(counted(6)), kLong, Seconds{4.99}), Stop::none);
  EXPECT_EQ(rule.decide(each(counted(6)), Seconds{0}, Seconds{5}), Stop::budget);
}

TEST(StoppingRule, StopsOnTheIntervalOnlyWhenItIsNarrowEnough) {
  // 20 samples: ranks 5 and 14, so 100.5 … 101.4 about 100.95: half width 0.45 / 100.95 = 0.446 %.
  const auto samples = each(counted(20, 100, 0.1));
  EXPECT_EQ((StoppingRule{.relative_half_width = 0.0045}.decide(samples, kLong, Seconds{0})), Stop::interval);
  EXPECT_EQ((StoppingRule{.relative_half_width = 0.0044}.decide(samples, kLong, Seconds{0})), Stop::none);
}

TEST(StoppingRule, AFixedCountIsExact) {
  const StoppingRule rule{.min_samples = 7, .max_samples = 7, .relative_half_width = 0, .budget = Seconds{1e9}};
  EXPECT_EQ(rule.decide(each(std::vector<double>(6, 1.0)), kLong, Seconds{0}), Stop::none);
  EXPECT_EQ(rule.decide(each(std::vector<double>(7, 1.0)), Seconds{0}, Seconds{0}), Stop::samples);
  EXPECT_EQ((StoppingRule{.max_samples = 1}.decide(each(std::vector{1.0}), Seconds{0}, Seconds{0})), Stop::samples);
}

TEST(Stop, HasItsName) {
  EXPECT_EQ(name(Stop::none), "none");
  EXPECT_EQ(name(Stop::interval), "interval");
  EXPECT_EQ(name(Stop::interrupted), "interrupted");
}

}  // namespace
}  // namespace gradmeter::core
