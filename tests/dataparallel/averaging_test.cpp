// SPDX-License-Identifier: Apache-2.0
// Strategies that average blocks of steps: which results they must equal, and from which they must differ.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "core/error.hpp"
#include "dataparallel/optimizers/optimizer.hpp"
#include "dataparallel/strategies/local_sgd.hpp"
#include "support/strategy_runs.hpp"

namespace gradmeter::dataparallel {
namespace {

using test::farthest;
using test::run_workers;
using test::StrategyEnd;
using test::StrategyRun;

double distance(const std::vector<StrategyEnd>& a, const std::vector<StrategyEnd>& b) {
  double most = 0;
  for (std::size_t r = 0; r < a.size(); ++r) most = std::max(most, farthest(a[r].weights, b[r].weights));
  return most;
}
double distance(int workers, std::string_view a, std::string_view b, StrategyRun run = {}) {
  run.strategy = a;
  const auto first = run_workers(workers, run);
  run.strategy = b;
  return distance(first, run_workers(workers, run));
}

TEST(ModelAveraging, OfEveryStepIsSyncForRulesThatAreLinearInTheGradient) {
  for (const auto* rule : {"sgd", "momentum:mu=0.9", "nesterov:mu=0.9"}) {
    for (const int p : {1, 2, 3, 4}) {
      EXPECT_LT(distance(p, "sync", "model-averaging:every=1", {.optimizer = rule}), 1e-6) << rule << " p " << p;
    }
  }
}

TEST(ModelAveraging, OfEveryStepIsNotSyncWithAdam) {
  EXPECT_GT(distance(4, "sync", "model-averaging:every=1", {.optimizer = "adam", .step_size = 0.01f}), 1e-2);
}

TEST(ModelAveraging, OfLongerBlocksIsNotSync) {
  EXPECT_GT(distance(4, "sync", "model-averaging:every=3"), 1e-4);
  EXPECT_EQ(distance(1, "sync", "model-averaging:every=3"), 0) << "but alone there is nothing to average";
}

TEST(ModelAveraging, IsSyncUntilItsStart) {
  EXPECT_LT(distance(3, "sync", "model-averaging:every=16,start=6"), 1e-6);
  EXPECT_GT(distance(3, "sync", "model-averaging:every=16,start=4"), 1e-5);
}

TEST(ModelAveraging, WorkersAreEqualJustAtTheEndOfABlock) {
  const auto ends = run_workers(3, {.strategy = "model-averaging:every=3,start=2", .steps = 8});
  for (const int step : {1, 2, 5, 8}) {
    const auto i = static_cast<std::size_t>(step - 1);
    for (const auto& e : ends) EXPECT_EQ(e.hashes[i], ends[0].hashes[i]) << step;
  }
  for (const int step : {3, 4, 6, 7}) {
    const auto i = static_cast<std::size_t>(step - 1);
    EXPECT_NE(ends[1].hashes[i], ends[0].hashes[i]) << step;
  }
}

TEST(AdaComm, PeriodsOfRecordedLossesAreThoseComputedByHand) {
  const AdaCommRule rule{.every = 10, .interval = 1, .gamma = 0.5};
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  // From F0 = 2: sqrt(F/2)*10 is 10, 3.9, 4.1, 0.4; where its ceiling is no less than the period, the half.
  const std::vector<std::pair<double, std::uint64_t>> recorded{{2, 5},     {0.3, 4}, {0.33, 2},
                                                               {0.003, 1}, {5, 1},   {nan, 1}};
  std::uint64_t period = rule.every;
  for (const auto& [loss, expected] : recorded) {
    period = rule.next_block_steps(period, 2, loss);
    EXPECT_EQ(period, expected) << loss;
  }
  EXPECT_EQ(rule.next_block_steps(10, 2, nan), 5u);
  EXPECT_EQ(rule.next_block_steps(10, 2, 0), 1u);
  EXPECT_EQ((AdaCommRule{.every = 8, .interval = 1, .gamma = 0.75}.next_block_steps(8, 1, 9)), 6u) << "the loss rose";
}

/// The steps with which blocks end, from the losses that each rank saw.
std::vector<std::uint64_t> ends_from_losses(const std::vector<StrategyEnd>& ends, const AdaCommRule& rule,
                                            std::size_t& changes) {
  std::vector<std::uint64_t> found;
  std::uint64_t period = rule.every, changed = 0;
  double first = 0, sum = 0;
  for (std::uint64_t step = 1, end = period; step <= ends[0].outcomes.size(); ++step) {
    double mean = 0;
    for (const auto& e : ends) mean += e.outcomes[step - 1].mean_loss() / static_cast<double>(ends.size());
    if (step == 1) first = mean;
    sum += mean;
    if (step != end) continue;
    if (step - changed >= rule.interval) {
      period = rule.next_block_steps(period, first, sum / static_cast<double>(step - changed));
      changed = step, sum = 0, ++changes;
    }
    found.push_back(step);
    end = step + period;
  }
  return found;
}

TEST(AdaComm, AllRanksAverageAtTheStepsThatTheirMeanLossesGive) {
  constexpr int p = 3, steps = 60;
  const StrategyRun run{.strategy = "adacomm:every=8,gamma=0.8,interval=10", .steps = steps};
  const auto ends = run_workers(p, run);
  std::size_t changes = 0;
  const auto expected = ends_from_losses(ends, {.every = 8, .interval = 10, .gamma = 0.8}, changes);
  std::vector<std::uint64_t> equal;
  for (std::size_t i = 0; i < steps; ++i) {
    if (ends[1].hashes[i] == ends[0].hashes[i] && ends[2].hashes[i] == ends[0].hashes[i]) equal.push_back(i + 1);
  }
  EXPECT_EQ(equal, expected);
  EXPECT_GT(expected.size(), steps / 8 + 1u) << "blocks must get shorter, or it shows nothing";
  EXPECT_GT(changes, 2u);
  std::uint64_t bytes = 0;
  for (const auto& e : ends) bytes += e.totals.bytes_sent;
  // Each change averages two losses, and gathers the period of each rank.
  EXPECT_EQ(bytes, 2 * (p - 1) * sizeof(float) * (run.model()->element_count() * expected.size() + 2 * changes) +
                       p * (p - 1) * sizeof(float) * changes);
}

TEST(AdaComm, IsModelAveragingUntilItsPeriodMayChange) {
  EXPECT_EQ(distance(3, "model-averaging:every=3", "adacomm:every=3,interval=7", {.steps = 9}), 0);
  EXPECT_GT(distance(3, "model-averaging:every=3", "adacomm:every=3,interval=5", {.steps = 9}), 1e-5);
  EXPECT_EQ(distance(1, "sync", "adacomm:every=3,interval=3"), 0) << "alone there is nothing to average";
}

TEST(AdaComm, ForecastsAreExactUntilThePeriodMayChangeThenTheMost) {
  const auto strategy = find_strategy("adacomm:every=4,interval=10")->make({});
  ForecastInput s{.ranks = 3, .elements = 100, .steps = 12};
  const std::uint64_t weights = 2 * 2 * 100 * sizeof(float), change = (2 * 2 * 2 + 2 * 3) * sizeof(float);
  EXPECT_EQ(strategy->predict(s).bytes, 3 * weights + change);
  EXPECT_TRUE(strategy->predict(s).exact);
  s.steps = 20;
  EXPECT_EQ(strategy->predict(s).bytes, 11 * weights + 9 * change);
  EXPECT_FALSE(strategy->predict(s).exact);
  EXPECT_TRUE(strategy->predict(s).upper_bound);
  EXPECT_EQ(strategy->predict(s).least, 5 * weights);
}

TEST(Bmuf, WithoutMomentumIsModelAveraging) {
  for (const int p : {2, 4}) {
    EXPECT_LT(distance(p, "model-averaging:every=3", "bmuf:every=3,mu=0,zeta=1"), 1e-6) << p;
    EXPECT_LT(distance(p, "model-averaging:every=3", "bmuf:every=3,mu=0,zeta=1,nesterov=1"), 1e-6) << p;
    EXPECT_GT(distance(p, "model-averaging:every=3", "bmuf:every=3,mu=0.5,zeta=1", {.steps = 9}), 1e-4) << p;
    EXPECT_GT(distance(p, "model-averaging:every=3", "bmuf:every=3,mu=0,zeta=0.5"), 1e-4) << p;
  }
}

TEST(Bmuf, AutomaticMomentumIsThePapers) {
  EXPECT_EQ(distance(4, "bmuf:every=2", "bmuf:every=2,mu=0.75"), 0);
  EXPECT_EQ(distance(2, "bmuf:every=2", "bmuf:every=2,mu=0.5"), 0);
  EXPECT_GT(distance(4, "bmuf:every=2", "bmuf:every=2,mu=0.5"), 1e-5);
}

TEST(Diloco, IsBmufWithNesterovMomentum) {
  EXPECT_LT(distance(3, "diloco:every=2,step=0.7,mu=0.9", "bmuf:every=2,zeta=0.7,mu=0.9,nesterov=1"), 1e-6);
  EXPECT_GT(distance(3, "diloco:every=2,step=0.7,mu=0.9", "bmuf:every=2,zeta=0.7,mu=0.9,nesterov=0"), 1e-4);
}

TEST(SlowMo, WithoutSlowMomentumIsModelAveraging) {
  for (const int p : {2, 4}) {
    EXPECT_LT(distance(p, "model-averaging:every=3", "slowmo:every=3,beta=0"), 1e-6) << p;
    EXPECT_GT(distance(p, "model-averaging:every=3", "slowmo:every=3,beta=0.5", {.steps = 9}), 1e-4) << p;
    EXPECT_GT(distance(p, "model-averaging:every=3", "slowmo:every=3,beta=0,alpha=0.5"), 1e-4) << p;
  }
}

float changing_step_size(int step) { return step < 3 ? 0.05f : 0.01f; }

TEST(SlowMo, OfEveryStepOfDescentIsHeavyBallOnTheMeanGradient) {
  for (const int p : {1, 2, 3, 4}) {
    StrategyRun run{.strategy = "sync", .optimizer = "momentum:mu=0.7", .step_sizes = changing_step_size};
    const auto heavy_ball = run_workers(p, run);
    run.optimizer = "sgd";
    run.strategy = "slowmo:every=1,beta=0.7";
    EXPECT_LT(distance(heavy_ball, run_workers(p, run)), 1e-6) << p;
    run.strategy = "bmuf:every=1,mu=0.7,zeta=1";
    EXPECT_GT(distance(heavy_ball, run_workers(p, run)), 1e-4) << p << ": whose v keeps the size of the old steps";
  }
}

TEST(SlowMo, BuffersThatAreResetBeginAsNew) {
  const auto run = [](std::string_view optimizer, std::string_view buffers) {
    return run_workers(
        3, {.strategy = "slowmo:every=1,buffers=" + std::string(buffers), .optimizer = std::string(optimizer)});
  };
  EXPECT_LT(distance(run("momentum:mu=0.9", "reset"), run("sgd", "maintain")), 1e-7);
  EXPECT_GT(distance(run("momentum:mu=0.9", "maintain"), run("sgd", "maintain")), 1e-3);
  EXPECT_LT(distance(run("adam:epsilon=0.01", "reset"), run("adam:beta1=0,beta2=0,epsilon=0.01", "maintain")), 1e-6);
  EXPECT_GT(distance(run("adam:epsilon=0.01", "maintain"), run("adam:beta1=0,beta2=0,epsilon=0.01", "maintain")), 1e-3);
}

TEST(SlowMo, BuffersThatAreAveragedAreThoseOfTheMeanGradient) {
  // Linear in the gradient, so after blocks of a step all workers have the velocity of sync's, and go on alike.
  for (const char* optimizer : {"momentum:mu=0.9", "nesterov:mu=0.9"}) {
    const StrategyRun run{.strategy = "slowmo:beta=0,buffers=average,every=1", .optimizer = optimizer};
    EXPECT_LT(distance(3, "sync", run.strategy, run), 1e-6) << optimizer;
  }
  // Within the second block they step by the mean velocity: other weights than by their own.
  const auto after = [](std::string_view buffers) {
    return run_workers(3, {.strategy = "slowmo:every=3,buffers=" + std::string(buffers), .steps = 4});
  };
  EXPECT_GT(distance(after("average"), after("maintain")), 1e-4);
  EXPECT_GT(distance(after("average"), after("reset")), 1e-4);
  EXPECT_EQ(distance(run_workers(1, {.strategy = "slowmo:every=3,buffers=average"}),
                     run_workers(1, {.strategy = "slowmo:every=3"})),
            0);
}

/// One weight through some blocks, by the paper's own sequences. Changes of blocks are given beforehand.
TEST(OuterMomentum, FollowsThePapersTwoSequences) {
  const std::vector<float> changes{1, -0.5f, 0.25f, 2, -1};
  constexpr double zeta = 0.8, mu = 0.6;
  for (const bool nesterov : {false, true}) {
    std::vector<float> w{3};
    const auto rule =
        make_outer_momentum({.elements = 1}, {.step = float(zeta), .mu = float(mu), .nesterov = nesterov});
    double global = 3, v = 0;  // W and Δ of the paper; blocks begin at W, or at W + mu·Δ
    for (const float change : changes) {
      v = mu * v + zeta * change;
      global += v;
      std::vector<float> delta{change};
      rule->apply(w, delta, 0, {.step_size = 123, .number = 1});
      EXPECT_NEAR(w[0], nesterov ? global + mu * v : global, 1e-5) << nesterov;
    }
  }
}

/// One weight through blocks that end with steps of these sizes. Changes of blocks are given beforehand.
TEST(OuterMomentum, FollowsSlowMosSequenceOverChangingStepSizes) {
  const std::vector<float> changes{1, -0.5f, 0.25f, 2, -1}, sizes{0.1f, 0.1f, 0.02f, 0.05f, 0.4f};
  constexpr double alpha = 0.8, beta = 0.6;
  std::vector<float> w{3};
  const auto rule =
      make_outer_momentum({.elements = 1}, {.step = float(alpha), .mu = float(beta), .follows_step_size = true});
  double x = 3, u = 0;
  for (std::size_t t = 0; t < changes.size(); ++t) {
    u = beta * u - double{changes[t]} / double{sizes[t]};
    x -= alpha * double{sizes[t]} * u;
    std::vector<float> delta{changes[t]};
    rule->apply(w, delta, 0, {.step_size = sizes[t], .number = 3 * t + 3});
    EXPECT_NEAR(w[0], x, 1e-5 * std::fabs(x)) << t;
  }
}

TEST(BlockAveraging, WhatIsJudgedIsTheMeanOfTheWorkersWeights) {
  for (const auto* name :
       {"model-averaging:every=4", "bmuf:every=4", "diloco:every=4", "slowmo:every=4", "adacomm:every=4"}) {
    const auto ends = run_workers(3, {.strategy = name});
    for (std::size_t i = 0; i < ends[0].weights.size(); ++i) {
      const double mean = (double(ends[0].weights[i]) + ends[1].weights[i] + ends[2].weights[i]) / 3;
      for (const auto& e : ends) ASSERT_NEAR(e.evaluation_weights[i], mean, 1e-6) << name << " " << i;
    }
    EXPECT_GT(farthest(ends[0].evaluation_weights, ends[0].weights), 1e-5) << name << ": within a block they differ";
    EXPECT_EQ(run_workers(3, {.strategy = name, .steps = 4})[1].evaluation_weights,
              run_workers(3, {.strategy = name, .steps = 4})[0].weights)
        << name << ": at its end they are the weights to the bit";
  }
}

TEST(BlockAveraging, ParametersThatMeanNothingAreRefused) {
  for (const auto* name : {"model-averaging:every=0", "bmuf:mu=1", "bmuf:mu=often", "bmuf:zeta=0", "bmuf:nesterov=2",
                           "diloco:step=0", "diloco:start=1", "slowmo:beta=1", "slowmo:alpha=0", "slowmo:buffers=keep",
                           "adacomm:gamma=1", "adacomm:interval=0"}) {
    EXPECT_THROW(find_strategy(name), core::UsageError) << name;
  }
}

}  // namespace
}  // namespace gradmeter::dataparallel
