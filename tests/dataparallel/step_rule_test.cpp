// SPDX-License-Identifier: Apache-2.0
// How servers make steps of changes: staleness-scaled steps, delay compensation, n-softsync, backup workers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "core/format.hpp"
#include "support/served.hpp"

namespace gradmeter::dataparallel {
namespace {

using test::each;
using test::sanitized;
using test::Seen;
using test::serve;
using test::Served;
using test::uneven;
using ::testing::HasSubstr;

TEST(StepRule, WhereNothingIsLateOrLeftOutAllAreThePlainStrategiesToTheBit) {
  const auto weights = [](const std::string& strategy, int ranks) {
    Served s{.strategy = strategy, .ranks = ranks, .flops = 1e8};  // so long that a server's time changes no order
    s.machine = uneven(ranks);
    std::vector<std::vector<float>> all;
    for (const Seen& seen : serve(s)) all.push_back(seen.weights);
    return all;
  };
  for (const int ranks : {1, 2, 4}) {
    const auto plain = weights("ps-async", ranks);
    EXPECT_EQ(weights("dc-asgd:lambda=0", ranks), plain);
    EXPECT_EQ(weights(fmt::format("ps-softsync:n={}", ranks), ranks), plain);
    EXPECT_EQ(weights("ps-softsync:n=64", ranks), plain) << "fewer workers than n make as many steps as there are";
    if (ranks > 1) {
      EXPECT_NE(weights("dc-asgd:lambda=0.1", ranks), plain) << "the control";
      EXPECT_NE(weights("ps-softsync:n=1", ranks), plain) << "the control";
      EXPECT_NE(weights("ps-async:scale=staleness", ranks), plain) << "the control";
    }
  }
  for (const auto* strategy : {"dc-asgd:lambda=0.5", "dc-asgd:adaptive=1,lambda=2", "ps-async:scale=staleness",
                               "ps-backup:backups=0", "ps-softsync:n=1"}) {
    EXPECT_EQ(weights(strategy, 1), weights("ps-sync", 1)) << strategy << ": one worker is late for nothing";
  }
  EXPECT_EQ(weights("ps-backup:backups=0", 2), weights("ps-sync", 2)) << "a sum of two has no order";
}

/// In lock step every update misses `delay` others, so its step is 1/delay of the size.
TEST(StepRule, StepsThatAreScaledByStalenessAreStableUpToThatManyTimesTheLimit) {
  for (const int delay : {1, 2, 3, 5, 8}) {
    if (sanitized && delay > 3) break;
    const double limit = delay * 2 * std::sin(std::numbers::pi / (4.0 * delay + 2));
    Served s{.strategy = "ps-async:scale=staleness",
             .ranks = delay + 2,
             .servers = 1,
             .steps = each(80),
             .elements = 4,
             .step_size = 1,
             .curvatures = {static_cast<float>(0.95 * limit), static_cast<float>(1.05 * limit)},
             .targets = Served::Targets::zero,
             .path = true,
             .flops = 1e8};
    const auto largest = [&](std::size_t element) {
      const auto seen = serve(s);
      float most = 0;
      for (std::size_t step = 60; step < 80; ++step) {
        const float x = std::fabs(seen[0].path[step][element]);
        most = std::isnan(x) ? INFINITY : std::max(most, x);
      }
      return most;
    };
    EXPECT_LT(largest(0), 1) << delay << ": below the limit it shrinks";
    EXPECT_GT(largest(1), 1) << delay << ": above it grows";
    if (delay < 2) continue;
    s.strategy = "ps-async:scale=sum";
    EXPECT_GT(largest(0), 10) << delay << ": the control, without the scale";
  }
}

/// Two workers in lock step on ½hx² from x = 1: a reads after its own update, b after both.
TEST(StepRule, ALateGradientIsCorrectedByTheFormula) {
  const float h = 0.5f, step = 0.2f, lambda = 0.3f, decay = 0.9f;
  const auto end = [&](const std::string& strategy) {
    Served s{.strategy = strategy,
             .ranks = 3,
             .servers = 1,
             .steps = each(2),
             .elements = 3,
             .step_size = step,
             .curvatures = {h},
             .targets = Served::Targets::zero,
             .flops = 1e8};
    const auto seen = serve(s);
    return std::min(seen[0].weights[0], seen[1].weights[0]);  // the later one has all updates
  };
  for (const bool adaptive : {false, true}) {
    float w = 1, mean_square = 0;
    const auto apply = [&](float read) {
      const float gradient = h * read, square = gradient * gradient;
      float factor = lambda;
      if (adaptive) {
        mean_square = decay * mean_square + (1 - decay) * square;
        factor /= std::sqrt(mean_square + 1e-7f);
      }
      return w -= step * (gradient + factor * square * (w - read));
    };
    const float a = apply(1), b = apply(1);
    apply(a);
    apply(b);
    const auto text = fmt::format("dc-asgd:scale=sum,lambda={},adaptive={},decay={}", lambda, int(adaptive), decay);
    EXPECT_NEAR(end(text), w, 1e-6) << text;
    EXPECT_GT(std::fabs(end("ps-async:scale=sum") - w), 1e-4) << "the control: without it";
  }
}

TEST(StepRule, SoftsyncStepsByTheMeanOfAsManyAsItSays) {
  // Four workers. At the end fewer are left than make a step, so some more are made of fewer changes.
  Served s{.strategy = "ps-softsync:n=2", .ranks = 5, .servers = 1, .steps = each(60)};
  EXPECT_NEAR(double(serve(s)[4].observed.applied), 4.0 * 60 / 2, 1);
  s.strategy = "ps-softsync:n=1";
  EXPECT_NEAR(double(serve(s)[4].observed.applied), 60.0, 3);
  s.strategy = "ps-async";
  EXPECT_EQ(serve(s)[4].observed.applied, 4u * 60) << "the control";
}

TEST(StepRule, ASlowBackupWorkerIsNotWaitedFor) {
  Served s{.strategy = "ps-sync", .ranks = 5, .servers = 1, .steps = each(12), .flops = 1e8};
  const double even = serve(s)[0].seconds;
  s.machine.slowdown = [](int rank, std::uint64_t) { return rank == 3 ? 3.0 : 1.0; };
  const double waited = serve(s)[0].seconds;
  s.strategy = "ps-backup:backups=1";
  const auto backed = serve(s);
  EXPECT_GT(waited, 2.5 * even) << "the control: ps-sync waits";
  EXPECT_LT(backed[0].seconds, 1.1 * even);
  EXPECT_GT(backed[4].observed.dropped, 0u);
}

TEST(StepRule, BackupWorkersThatAreAlwaysLateChangeNothing) {
  // The fourth is so slow that it sees the end of the others only.
  Served s{.strategy = "ps-backup:backups=1",
           .ranks = 5,
           .servers = 1,
           .steps = [](int rank) { return rank == 3 ? 1 : 12; },
           .flops = 1e8};
  s.machine.slowdown = [](int rank, std::uint64_t) { return rank == 3 ? 11.5 : 1.0; };
  const auto backed = serve(s);
  const auto three = serve({.strategy = "ps-sync", .ranks = 4, .servers = 1, .steps = each(12), .flops = 1e8});
  for (std::size_t i = 0; i < backed[0].weights.size(); ++i)
    EXPECT_NEAR(backed[0].weights[i], three[0].weights[i], 1e-6);
  EXPECT_EQ(backed[4].observed.dropped, 1u);
  EXPECT_EQ(backed[4].observed.applied, 12u);
}

TEST(StepRule, ADyingWorkerLeavesNoStepUnfinished) {
  for (const auto* strategy : {"ps-softsync:n=1", "ps-backup:backups=1", "dc-asgd"}) {
    Served s{.strategy = strategy, .ranks = 5, .servers = 1, .steps = [](int rank) { return 6 + rank; }};
    s.machine = uneven(4);
    for (int r = 0; r < 4; ++r) EXPECT_EQ(serve(s)[static_cast<std::size_t>(r)].steps, 6 + r) << strategy;
  }
}

TEST(StepRule, WhatCannotBeIsRefusedWithTheReason) {
  const auto why = [](const char* strategy, const StrategyOptions& o, int ranks) {
    const auto rule = make_optimizer("sgd", {});
    return find_strategy(strategy)->make(o)->refusal(*rule, ranks);
  };
  EXPECT_THAT(why("ps-backup:backups=3", {}, 3), HasSubstr("leave none whose gradients count"));
  EXPECT_EQ(why("ps-backup:backups=2", {}, 3), "");
  EXPECT_THAT(why("dc-asgd", {.codec = compression::find_codec("qsgd8")}, 2), HasSubstr("use no codec"));
}

}  // namespace
}  // namespace gradmeter::dataparallel
