// SPDX-License-Identifier: Apache-2.0
#include "bench/train/limits.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "bench/scale/curve.hpp"
#include "kernels/host/threads.hpp"
#include "runtime/process/signals.hpp"
#include "runtime/process/watchdog.hpp"
#include "runtime/threads/thread_group.hpp"
#include "support/machines.hpp"
#include "support/mlp.hpp"
#include "support/sanitized.hpp"

namespace gradmeter::bench {
namespace {

using core::Metric;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// All ranks on one node, which exchange at this rate.
core::Machine measured(double bytes_per_s) { return gradmeter::test::linked(0, bytes_per_s, 1); }

TEST(LeastExchangeTime, OnANodeIsARanksBytesAtTheRateOfMemory) {
  const core::Machine m = measured(1e9);
  EXPECT_NEAR(exchange_time_bound({.by_busiest_rank = 3e6, .by_busiest_node = 0}, m).value, 3e-3, 1e-12);
  EXPECT_EQ(exchange_time_bound({}, m).value, 0);
  EXPECT_EQ(link_rate(m), 1e9);
}

TEST(LeastExchangeTime, BetweenNodesThePortIsShared) {
  core::Machine m = measured(9e9);
  m.ranks_per_node = 4;
  m.node_port.bytes_per_s = 1e9;
  EXPECT_NEAR(exchange_time_bound({.by_busiest_rank = 1e6, .by_busiest_node = 4e6}, m).value, 4e-3, 1e-12);
  EXPECT_NEAR(exchange_time_bound({.by_busiest_rank = 1e8, .by_busiest_node = 4e6}, m).value, 1e-2, 1e-12)
      << "both ways at once at best";
  EXPECT_EQ(link_rate(m), 1e9);
  m.ranks_per_node = 1;
  EXPECT_NEAR(exchange_time_bound({.by_busiest_rank = 1e8, .by_busiest_node = 4e6}, m).value, 0.1, 1e-12)
      << "no peer on the node";
}

TEST(PartnersOnNextNode, AreNeverOnTheSameNode) {
  EXPECT_THAT(partners_on_next_node(std::vector{0, 0, 1, 1}), ElementsAre(2, 3, 0, 1));
  EXPECT_THAT(partners_on_next_node(std::vector{0, 1, 0, 1}), ElementsAre(1, 0, 3, 2));
  EXPECT_THAT(partners_on_next_node(std::vector{0, 0, 2}), ElementsAre(2, 2, 0)) << "named by their lowest ranks";
  EXPECT_THAT(partners_on_next_node(std::vector{0, 1, 2}), ElementsAre(1, 2, 0));
  const std::vector<std::vector<int>> maps{{0, 1, 2, 2, 1, 0}, {0, 0, 2, 2, 2}, {0, 1, 1, 1, 4, 4}};
  for (const auto& node_of : maps) {
    const auto partners = partners_on_next_node(node_of);
    for (std::size_t r = 0; r < node_of.size(); ++r) {
      EXPECT_NE(node_of[static_cast<std::size_t>(partners[r])], node_of[r]) << r;
    }
  }
}

core::Point step_of(double median, double high) {
  core::Point p;
  p.metrics[Metric::time_s] = core::Summary{.median = median, .ci95_low = median / 2, .ci95_high = high};
  return p;
}

const StepBound bound{.compute = {0.010}, .roofline = {0.008}, .exchange = {0.004}, .machine = measured(2e9)};

TEST(FillBound, TheLimitIsTheLongerPart) {
  core::Point row = step_of(0.020, 0.021);
  fill_bound(bound, row);
  EXPECT_EQ(row.metrics.number(Metric::limit_s), 0.010);
  EXPECT_EQ(core::to_text(row.metrics[Metric::limit]), "compute");
  EXPECT_EQ(row.metrics.number(Metric::limit_exchange_s), 0.004);
  EXPECT_EQ(row.metrics.number(Metric::limit_roofline_s), 0.008);
  EXPECT_EQ(row.metrics.number(Metric::roofline), 0.5);
  EXPECT_EQ(row.metrics.number(Metric::link_bytes_per_s), 2e9);
  EXPECT_EQ(row.status, core::Status::ok);

  StepBound wire = bound;
  wire.exchange = {0.015};
  fill_bound(wire, row);
  EXPECT_EQ(row.metrics.number(Metric::limit_s), 0.015);
  EXPECT_EQ(core::to_text(row.metrics[Metric::limit]), "link");
}

TEST(FillBound, WithoutAnExchangeThereIsNoLink) {
  core::Point row = step_of(0.020, 0.021);
  StepBound alone = bound;
  alone.exchange = {};
  fill_bound(alone, row);
  EXPECT_TRUE(core::is_null(row.metrics[Metric::limit_exchange_s]));
  EXPECT_TRUE(core::is_null(row.metrics[Metric::link_bytes_per_s]));
}

TEST(FillBound, AStepBelowItsLimitBeyondItsIntervalIsMistrusted) {
  core::Point within = step_of(0.0099, 0.0101), below = step_of(0.0080, 0.0090), wrong = step_of(0.0080, 0.0090);
  core::Point unsure = step_of(0.0080, std::nan(""));
  wrong.status = core::Status::wrong;
  for (core::Point* p : {&within, &below, &wrong, &unsure}) fill_bound(bound, *p);
  EXPECT_EQ(within.status, core::Status::ok);
  EXPECT_EQ(below.status, core::Status::mistrusted);
  EXPECT_THAT(below.reason, HasSubstr("8.00 ms (at most 9.00 ms) is below its limit of 10.0 ms (compute)"));
  EXPECT_EQ(wrong.status, core::Status::wrong) << "what is wrong stays wrong";
  EXPECT_EQ(unsure.status, core::Status::mistrusted) << "without an interval the median speaks";
}

TEST(FillBound, ADoubtComesBeforeWhatTheRowSays) {
  core::Point row = step_of(0.0080, 0.0090);
  row.reason = "bf16 is multiplied in tiles";
  fill_bound(bound, row);
  EXPECT_THAT(row.reason, testing::EndsWith("measure again; bf16 is multiplied in tiles"));
}

TEST(OperationTimer, AddsUpWhatTheStepRuns) {
  const model::Mlp model({64, 48, 10});
  const auto pass = model.pass_problems(8);
  OperationTimer probe(1);
  EXPECT_THROW((void)probe.times(pass), std::logic_error);
  for (int i = 0; i < 3; ++i) probe.round(pass, core::Seconds{0});
  const OperationTimes once = probe.times(pass);
  EXPECT_GT(once.roofline, 0);
  // A sanitizer slows our own multiply-adds, which the library's rate is held against, and not the library.
  if (!test::sanitized) {
    EXPECT_LE(once.roofline, once.library);
  }
  auto often = pass;
  for (auto& p : often) p.times *= 3;
  EXPECT_NEAR(probe.times(often).library, 3 * once.library, 1e-9 * once.library);
  EXPECT_NEAR(probe.times(often).roofline, 3 * once.roofline, 1e-9 * once.library);
  const auto forward = model.forward_problems(8);  // of the same shapes: need no round of their own
  EXPECT_LT(probe.times(forward).library, once.library);
  EXPECT_EQ(probe.times({}).library, 0);
}

TEST(RankGroups, MeasureAPrecisionsLimitsByThemselves) {
  runtime::SignalWatch signals;
  runtime::Watchdog watchdog;
  runtime::run_thread_ranks(1, [&](const runtime::Communicator& world) {
    Session session(world, {signals, watchdog}, core::Seconds{60}, "test");
    RankGroups groups(session);
    ScalePoint single, half;
    half.precision = kernels::Precision::bf16;
    RankGroup& group = groups.of(single);
    const StepLimits* const limits = &groups.limits(group, single);
    EXPECT_NE(&groups.limits(group, half), limits) << "a peak of another precision is no limit";
    EXPECT_EQ(&groups.limits(group, single), limits);
  });
}

TEST(OperationTimer, MoreRoundsOnlyLowerTheBound) {
  const auto pass = model::Mlp({64, 48, 10}).pass_problems(8);
  OperationTimer probe(1);
  probe.round(pass, core::Seconds{0});
  double before = probe.times(pass).library, rate = probe.peak().value;
  for (int i = 0; i < 5; ++i) {
    probe.round(pass, core::Seconds{1});
    EXPECT_LE(probe.times(pass).library, before);
    EXPECT_GE(probe.peak().value, rate);
    before = probe.times(pass).library, rate = probe.peak().value;
  }
}

}  // namespace
}  // namespace gradmeter::bench
