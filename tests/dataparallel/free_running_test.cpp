// SPDX-License-Identifier: Apache-2.0
#include "support/free_running.hpp"

#include <gtest/gtest.h>

#include <numeric>

#include "model/data/sources.hpp"

namespace gradmeter::dataparallel {
namespace {

using test::Evaluator;
using test::FreeRun;
using test::FreeTraining;
using test::Moment;

/// Four workers of a small model. Computation is as long as what travels, or longer.
FreeRun run_of(const std::string& strategy) {
  FreeRun run{.strategy = find_strategy(strategy), .model = "mlp:784-16-10", .ranks = 4, .batch = 4, .samples = 768};
  run.evaluate_every = run.samples;
  run.machine.machine.flops_per_s = 1e9;
  run.machine.machine.noise = 0.1;
  return run;
}

Moment train(const FreeRun& run) {
  const auto data = model::make_digits({.samples = 480, .seed = 5});
  Evaluator evaluator(run.model, *data);
  return FreeTraining(run, *data, evaluator).train();
}

TEST(FreeRunning, EvaluationTakesNoTimeAndChangesNothing) {
  for (const char* strategy :
       {"sync", "ps-sync", "ps-async", "ps-ssp", "ps-backup", "ps-softsync", "d-psgd", "ad-psgd"}) {
    FreeRun run = run_of(strategy);
    const Moment seldom = train(run);
    run.evaluate_every = run.batch;
    const Moment often = train(run);
    EXPECT_EQ(often.seconds, seldom.seconds) << strategy;
    EXPECT_EQ(often.steps, seldom.steps) << strategy;
    EXPECT_EQ(often.accuracy, seldom.accuracy) << strategy;
    EXPECT_GT(often.accuracy, 0.3) << strategy << ": it trains";
    run.step_size /= 2;
    EXPECT_NE(train(run).accuracy, seldom.accuracy) << strategy << ": the control: what is evaluated depends on steps";
  }
}

TEST(FreeRunning, ASlowWorkerTakesFewerStepsWhereNobodyWaitsForIt) {
  const auto share = [](const char* strategy) {  // of the slow worker's steps, to another one's
    FreeRun run = run_of(strategy);
    run.machine.slowdown = [](int rank, std::uint64_t) { return rank == 3 ? 3.0 : 1.0; };
    const Moment end = train(run);
    EXPECT_EQ(std::accumulate(end.steps.begin(), end.steps.end(), std::size_t{0}) * run.batch, run.samples);
    return double(end.steps[3]) / double(end.steps[0]);
  };
  EXPECT_NEAR(share("ps-async"), 1.0 / 3, 0.1);
  EXPECT_NEAR(share("sync"), 1, 0.05);
}

TEST(FreeRunning, ItEndsWhereItHasTheTarget) {
  FreeRun run = run_of("sync");
  run.evaluate_every = run.batch * 4;
  run.target = 0.2;
  const Moment early = train(run);
  EXPECT_LT(early.samples, run.samples);
  EXPECT_GE(early.accuracy, run.target);
}

TEST(FreeRunning, EvaluationWeightsThatMustBeCommunicatedAreRefused) {
  EXPECT_THROW(train(run_of("gossip")), core::UsageError);
}

}  // namespace
}  // namespace gradmeter::dataparallel
