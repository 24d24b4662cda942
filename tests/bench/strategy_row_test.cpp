// SPDX-License-Identifier: Apache-2.0
#include "bench/train/metrics.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "bench/scale/learning.hpp"

namespace gradmeter::bench {
namespace {

using core::Metric;
using ::testing::HasSubstr;

TEST(Staleness, TheTailIsNotHiddenByTheMean) {
  std::vector<std::uint64_t> counts(101, 0);
  counts[0] = 970;
  counts[100] = 30;
  const auto s = summarise_staleness(counts);
  EXPECT_DOUBLE_EQ(s.mean, 3);
  EXPECT_EQ(s.p99, 100u);
  EXPECT_EQ(s.max, 100u);
}

TEST(Staleness, OneInAHundredIsWhatThePercentileLeavesOut) {
  std::vector<std::uint64_t> counts{99, 0, 0, 1};
  EXPECT_EQ(summarise_staleness(counts).p99, 0u);
  EXPECT_EQ(summarise_staleness(counts).max, 3u);
  counts = {98, 0, 1, 1};
  EXPECT_EQ(summarise_staleness(counts).p99, 2u);
}

TEST(Staleness, WithoutUpdatesThereIsNothingToSay) {
  EXPECT_EQ(summarise_staleness({}).max, 0u);
  core::Metrics m;
  fill_observations({}, 1, m);
  EXPECT_TRUE(core::is_null(m[Metric::staleness]));
}

TEST(Observations, ACycleThatWasCutShortCountsAsLongAsItLasted) {
  const dataparallel::Observations o{.staleness = {0, 0, 1, 3}, .staleness_under_way = 1, .updates = 4};
  EXPECT_DOUBLE_EQ(o.mean_staleness(), 3);
  core::Metrics m;
  fill_observations(o, 2, m);
  EXPECT_DOUBLE_EQ(m.number(Metric::staleness), 3);
  EXPECT_DOUBLE_EQ(m.number(Metric::updates_per_s), 2);
}

TEST(Waits, CausesStandInTheOrderOfTheirTime) {
  StepSamples t{.times = {1, 3}, .waits = {{"messages", 0.5}, {"ring", 1.5}}};
  core::Metrics m;
  m[Metric::time_s] = 2.0;
  fill_waits(t, m);
  EXPECT_DOUBLE_EQ(m.number(Metric::standstill_s), 1) << "half of all time, and so of the median step";
  EXPECT_EQ(m[Metric::standstill_causes].get<std::string>(), "ring 75 %, messages 25 %");
}

TEST(Waits, AStrategyThatNeverWaitsHasNoCause) {
  core::Metrics m;
  m[Metric::time_s] = 2.0;
  fill_waits({.times = {2}}, m);
  EXPECT_EQ(m.number(Metric::standstill_s), 0);
  EXPECT_TRUE(core::is_null(m[Metric::standstill_causes]));
}

TrainingTotals sent(std::uint64_t bytes) {
  return {.bytes_sent = bytes, .steps = 10, .forecast = {.bytes = 1000, .messages = 10}};
}

TEST(Totals, BytesThatDifferFromTheForecastMakeTheRowWrong) {
  core::Point right, wrong;
  fill_totals(sent(1000), right);
  fill_totals(sent(1001), wrong);
  EXPECT_EQ(right.status, core::Status::ok);
  EXPECT_EQ(right.metrics[Metric::bytes_sent_total].get<std::int64_t>(), 100);
  EXPECT_EQ(right.metrics[Metric::bytes_predicted].get<std::int64_t>(), 100);
  EXPECT_EQ(wrong.status, core::Status::wrong);
  EXPECT_THAT(wrong.reason, HasSubstr("1001 bytes"));
}

TEST(Totals, WhatNobodyCouldForecastIsHeldToItsCalls) {
  auto t = sent(1001);
  t.forecast.exact = false;
  t.bytes_of_messages = 1001;
  core::Point right, wrong, unknown;
  fill_totals(t, right);
  t.bytes_of_messages = 1000;
  fill_totals(t, wrong);
  t.bytes_known = false;  // a vendor's
  fill_totals(t, unknown);
  EXPECT_EQ(right.status, core::Status::ok);
  EXPECT_EQ(wrong.status, core::Status::wrong);
  EXPECT_EQ(unknown.status, core::Status::ok);
}

TEST(Totals, WhatHasAMostIsHeldToItAndToItsCalls) {
  auto t = sent(1000);
  t.forecast = {.bytes = 1000, .exact = false, .upper_bound = true};
  t.bytes_of_messages = 1000;
  core::Point right, beyond;
  fill_totals(t, right);
  EXPECT_EQ(right.status, core::Status::ok);
  t.bytes_sent = t.bytes_of_messages = 1001;
  fill_totals(t, beyond);
  EXPECT_EQ(beyond.status, core::Status::wrong);
  EXPECT_THAT(beyond.reason, HasSubstr("1000 at most"));
}

TEST(Learning, EqualTimeIsWhatTheControlTakesForTheSamples) {
  // The control takes 1000 samples in 100 steps of 10 ms: one second. A step of 25 ms fits in 40 times.
  const auto plan = plan_learning(1000, 20, 10, 0.025, 0.010);
  EXPECT_EQ(plan.steps_for_samples, 50u);
  EXPECT_EQ(plan.steps_for_time, 40u);
}

TEST(Learning, ThereIsAlwaysAStep) {
  EXPECT_EQ(plan_learning(1, 64, 64, 10, 0.001).steps_for_samples, 1u);
  EXPECT_EQ(plan_learning(1, 64, 64, 10, 0.001).steps_for_time, 1u);
  EXPECT_EQ(plan_learning(1000, 64, 64, std::nan(""), 0.001).steps_for_time, 1u);
}

/// Of a strategy with its usual optimizer.
LearningConfig learning(const char* strategy, std::size_t batch, int workers, const LearningRule& rule = {}) {
  return learning_config({.batch_per_rank = batch, .strategy = dataparallel::find_strategy(strategy)},
                         batch * static_cast<std::size_t>(workers), rule);
}
double scaled_step(const LearningConfig& c) {
  return c.step_rule.scaled(static_cast<double>(c.training.step_size), c.batch);
}

TEST(LearningConfig, ScalesTheStepWithTheBatchByTheOptimizer) {
  EXPECT_NEAR(scaled_step(learning("sync", 64, 4)), 0.04, 1e-9) << "momentum: linear in the global batch";
  EXPECT_NEAR(scaled_step(learning("sync", 16, 1)), 0.0025, 1e-9);
  EXPECT_NEAR(scaled_step(learning("diloco", 64, 4)), 0.002, 1e-9) << "AdamW: the square root";
  for (const char* averages : {"model-averaging", "bmuf", "slowmo", "gossip"}) {
    const auto four = learning(averages, 64, 4), one = learning(averages, 64, 1);
    EXPECT_NEAR(scaled_step(four) / scaled_step(one), 4, 1e-6) << averages << ": linear in the batch of all workers";
  }
  EXPECT_NEAR(scaled_step(learning("es", 64, 4)), 0.001, 1e-9) << "no gradient: as it is";
  EXPECT_NEAR(scaled_step(learning("independent", 64, 4)), 0.01, 1e-9) << "each worker learns alone";
  EXPECT_EQ(learning("diloco", 64, 4).training.optimizer, "adamw");
}

TEST(LearningConfig, SaysItsRule) {
  EXPECT_EQ(learning("sync", 64, 4).text, "momentum:mu=0.9, lr 0.01, linear:batch=64 to 0.04, warm-up 0.1 epochs");
  const auto asked = learning("sync", 64, 4, {.step_rule = StepSizeRule("constant"), .warmup_epochs = 0});
  EXPECT_EQ(asked.text, "momentum:mu=0.9, lr 0.01, constant to 0.01, warm-up 0 epochs");
  LearningRule given{.step_rule = StepSizeRule("sqrt:batch=16")};
  EXPECT_NEAR(scaled_step(learning("sync", 64, 4, given)), 0.04, 1e-9);
}

TEST(StepTimes, HaveTheirShareOfAnExchangeEveryFewSteps) {
  const std::vector<double> steps{1, 1, 1, 9, 1, 1, 1, 9, 1, 1};
  EXPECT_EQ(period_means(steps, 4), (std::vector<double>{3, 3})) << "the median of single steps would be 1";
  EXPECT_EQ(period_means(std::span(steps).subspan(2), 4), (std::vector<double>{3, 3})) << "wherever a period begins";
  EXPECT_EQ(period_means(steps, 1), steps);
  EXPECT_EQ(period_means(std::span(steps).first(3), 4), std::vector<double>{1}) << "less than a period is all there is";
  EXPECT_TRUE(period_means({}, 4).empty());
}

}  // namespace
}  // namespace gradmeter::bench
