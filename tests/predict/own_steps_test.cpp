// SPDX-License-Identifier: Apache-2.0
#include "predict/own_steps.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/machines.hpp"

namespace gradmeter::predict {
namespace {

using core::Factor;
using core::Metric;
using ::testing::HasSubstr;

constexpr double alone_s = 20e-3;
/// Bytes of the gradients of mlp:784-1024-1024-10.
constexpr std::size_t gradient_bytes = std::size_t{4} * (784 * 1024 + 1024 + 1024 * 1024 + 1024 + 1024 * 10 + 10);

core::Machine hosts() {
  core::Machine m = gradmeter::test::linked(4e-6, 8e9, 2e10);
  m.ranks_per_node = 1;
  m.between_nodes = {.latency_s = 6e-5, .bandwidth = {{.bytes_per_s = 1.2e8}}};
  return m;
}

double exchange_s(const std::string& algorithm, std::uint32_t ranks) {
  return ranks == 1 ? 0
                    : collective_seconds({.algorithm = allreduce::find_algorithm(algorithm),
                                          .shape = {ranks, 1},
                                          .bytes = gradient_bytes,
                                          .message_bytes = std::size_t{1} << 20},
                                         hosts());
}

core::Point step_point(const std::string& strategy, const std::string& algorithm, std::int64_t ranks) {
  core::Point p;
  p.experiment = "scale";
  p.factors[Factor::ranks] = ranks;
  p.factors[Factor::nodes] = ranks;
  p.factors[Factor::ranks_per_node] = std::int64_t{1};
  p.factors[Factor::model] = "mlp:784-1024-1024-10";
  p.factors[Factor::batch_per_rank] = std::int64_t{64};
  p.factors[Factor::batch_global] = 64 * ranks;
  p.factors[Factor::interconnect] = "1gbe";
  p.factors[Factor::strategy] = strategy;
  const double exchange = strategy == "independent" ? 0 : exchange_s(algorithm, static_cast<std::uint32_t>(ranks));
  if (exchange > 0) {
    p.factors[Factor::algorithm] = algorithm;
    p.factors[Factor::overlap] = "none";
    p.factors[Factor::bucket_bytes] = std::int64_t{1} << 30;
    p.metrics[Metric::comm_s] = exchange;
  }
  p.metrics[Metric::time_s] = alone_s + exchange;
  p.metrics[Metric::compute_s] = alone_s;
  return p;
}

/// One rank, and both algorithms on each of these.
std::vector<OwnStep> curve(const std::vector<std::int64_t>& ranks) {
  core::Run run;
  run.points.push_back(step_point("independent", "", 1));
  for (const std::int64_t n : ranks)
    for (const char* algorithm : {"ring", "rabenseifner"}) run.points.push_back(step_point("sync", algorithm, n));
  return steps_of({&run, 1}, "scale.jsonl");
}

TEST(OwnSteps, MoreRanksArePredictedFromFew) {
  const OwnStepCalibration calibration(curve({2, 4}), {});
  const auto held = curve({8, 16});
  const auto s = score(calibration, held, "more.jsonl");
  EXPECT_EQ(s.unpredicted, 0u);
  EXPECT_LT(s.mape.value(), 10);
  EXPECT_GE(s.coverage.value(), 85);
  EXPECT_LT(s.mape.value(), s.linear_mape.value());
}

core::Point strong_point(std::int64_t ranks, std::int64_t batch_global) {
  core::Point p = step_point("sync", "ring", ranks);
  p.factors[Factor::scaling] = "strong";
  p.factors[Factor::batch_global] = batch_global;
  p.factors[Factor::batch_per_rank] = batch_global / ranks;
  return p;
}

TEST(OwnSteps, AStrongCurveHasOneBatchOfAllRanks) {
  core::Run run;
  run.points = {strong_point(2, 64), strong_point(4, 64), strong_point(4, 128), step_point("sync", "ring", 4)};
  const auto steps = steps_of({&run, 1}, "scale.jsonl");
  EXPECT_EQ(steps[0].curve(), steps[1].curve());
  EXPECT_EQ(on_ranks(steps[0], 16).curve(), steps[0].curve());
  EXPECT_NE(steps[1].curve(), steps[2].curve());
  EXPECT_NE(steps[1].curve(), steps[3].curve());
}

TEST(OwnSteps, PartsAddUpAndGrowWithTheRanks) {
  const OwnStepCalibration calibration(curve({2, 4}), {});
  double before = 0;
  for (const std::int64_t n : {8, 64, 1024, 65536}) {
    const auto p = calibration.predict(on_ranks(calibration.rows().back(), n)).prediction;
    ASSERT_TRUE(p) << n;
    EXPECT_NEAR(p->compute_s + p->contention_s + p->exposed_s, p->step.seconds, 1e-9);
    EXPECT_NEAR(p->compute_s, alone_s, 1e-9);
    EXPECT_GE(p->exposed_s, before) << n;
    EXPECT_LT(p->step.low, p->step.seconds);
    before = p->exposed_s;
  }
}

TEST(OwnSteps, SharedCoresSlowComputationDown) {
  const OwnStepCalibration calibration(curve({2}), {}, {.shared_cores = 2});
  const auto p = calibration.predict(on_ranks(calibration.rows().back(), 4)).prediction;
  ASSERT_TRUE(p);
  EXPECT_NEAR(p->contention_s, alone_s, 1e-3) << "four ranks on two cores compute twice as long";
  EXPECT_EQ(calibration.predict(on_ranks(calibration.rows().back(), 1)).prediction.value().contention_s, 0);
}

/// With a server on each rank a rank sends and gets its share of both ways to all others, as a ring does.
TEST(OwnSteps, ServersOnAllRanksTakeAsLongAsTheirBytes) {
  const auto bytes_s = [](double ranks) { return 2 * (ranks - 1) / ranks * gradient_bytes / 1.2e8; };
  auto rows = curve({2});
  core::Run run;
  for (const std::int64_t ranks : {2, 4}) {
    run.points.push_back(step_point("independent", "", ranks));
    run.points.back().factors[Factor::strategy] = "ps-sync:servers=0";
    run.points.back().metrics[Metric::time_s] = alone_s + bytes_s(static_cast<double>(ranks));
  }
  const auto servers = steps_of({&run, 1}, "servers.jsonl");
  rows.push_back(servers.front());
  const auto p = OwnStepCalibration(rows, {}).predict(servers.back()).prediction;
  ASSERT_TRUE(p);
  EXPECT_NEAR(p->step.seconds / servers.back().step_s, 1, 0.25);
}

TEST(OwnSteps, WithoutARowOfOneRankThereIsAReason) {
  auto rows = curve({2});
  std::erase_if(rows, [](const OwnStep& s) { return s.ranks == 1; });
  const OwnStepCalibration calibration(rows, {});
  EXPECT_EQ(calibration.predict(rows.front()).reason, "no row of one rank computes the same");
}

TEST(OwnSteps, WithoutAMeasuredExchangeThereIsAReason) {
  auto rows = curve({2, 4});
  for (OwnStep& s : rows)
    if (s.ranks > 1) s.factors[Factor::overlap] = "bucketed";
  const OwnStepCalibration calibration(rows, {});
  EXPECT_THAT(calibration.predict(rows.back()).reason, HasSubstr("no exchange was measured from which links follow"));
  EXPECT_TRUE(calibration.predict(on_ranks(rows.back(), 1)).prediction) << "one rank exchanges nothing";
}

TEST(OwnSteps, AMeshIsNeitherPredictedNorLearntFrom) {
  auto rows = curve({2, 4});
  const double without = OwnStepCalibration(rows, {}).predict(on_ranks(rows.back(), 8)).prediction.value().step.seconds;
  auto meshes = curve({2, 4, 16});
  for (OwnStep& s : meshes) s.factors[Factor::mesh] = "data=1,tensor=2", s.step_s *= 3, s.comm_s *= 3;
  rows.insert(rows.begin(), meshes.begin(), meshes.end());
  const OwnStepCalibration calibration(rows, {});
  EXPECT_EQ(calibration.predict(on_ranks(rows.back(), 8)).prediction.value().step.seconds, without);
  EXPECT_EQ(calibration.most_ranks(), 4);
  EXPECT_EQ(calibration.predict(meshes.back()).reason, "a mesh of tensor or pipeline ranks is not predicted");
}

TEST(OwnSteps, WhatWasPredictedBeforeChangesNothing) {
  core::Run run;
  run.points = {step_point("independent", "", 1), strong_point(2, 64), strong_point(4, 64)};
  const auto rows = steps_of({&run, 1}, "scale.jsonl");
  const auto on_16_after = [&](std::int64_t ranks) {
    const OwnStepCalibration calibration(rows, {});
    (void)calibration.predict(on_ranks(rows.back(), ranks));
    return calibration.predict(on_ranks(rows.back(), 16)).prediction.value().step.seconds;
  };
  EXPECT_EQ(on_16_after(64), on_16_after(16));
}

TEST(OwnSteps, AnAlgorithmThatRefusesTheRanksIsNotReplacedByAnother) {
  core::Run run;
  run.points = {step_point("independent", "", 1), step_point("sync", "torus2d:rows=2", 4)};
  const auto rows = steps_of({&run, 1}, "scale.jsonl");
  const OwnStepCalibration calibration(rows, {});
  EXPECT_TRUE(calibration.predict(on_ranks(rows.back(), 34)).prediction);
  EXPECT_THAT(calibration.predict(on_ranks(rows.back(), 33)).reason, HasSubstr("on 33 ranks: "));
}

}  // namespace
}  // namespace gradmeter::predict
