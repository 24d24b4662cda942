// SPDX-License-Identifier: Apache-2.0
// The points of an inference sweep, the paired interval of what a precision loses, and when logits cannot be right.
#include <gtest/gtest.h>

#include <cmath>
#include <tuple>

#include "bench/infer/infer.hpp"
#include "bench/infer/measure.hpp"
#include "core/random.hpp"

namespace gradmeter::bench {
namespace {

using kernels::Precision;

TEST(InferPlan, CrossesModelsBatchesAndPrecisionsInGroupsThatTakeTurns) {
  const auto points = plan_infer(
      {.models = {"a", "b"}, .batches = {1, 16}, .precisions = {Precision::fp32, Precision::int4, Precision::int8}});
  ASSERT_EQ(points.size(), 10u);  // int4 once for each model
  const auto at = [&](std::size_t i) { return std::tuple(points[i].model, points[i].batch, points[i].precision); };
  EXPECT_EQ(at(0), std::tuple("a", 1U, Precision::fp32));
  EXPECT_EQ(at(1), std::tuple("a", 1U, Precision::int8));
  EXPECT_EQ(at(2), std::tuple("a", 16U, Precision::fp32));
  EXPECT_EQ(at(4), std::tuple("a", 0U, Precision::int4));
  EXPECT_EQ(at(5), std::tuple("b", 1U, Precision::fp32));
  EXPECT_EQ(points[0].group, points[1].group);
  EXPECT_NE(points[1].group, points[2].group);
  EXPECT_NE(points[3].group, points[4].group);
  EXPECT_NE(points[4].group, points[5].group);
  // A GPU has fp16, which a host emulates, and no int4.
  const auto on_gpu =
      plan_infer({.models = {"a"}, .batches = {1}, .precisions = {Precision::fp16, Precision::int4}, .on_host = false});
  ASSERT_EQ(on_gpu.size(), 2u);
  EXPECT_EQ(on_gpu[0].batch, 1u);
  EXPECT_EQ(on_gpu[1].batch, 0u);
  const auto factors = to_factors(points[4], {.node_of = {0}}, 2, "cpu");
  EXPECT_TRUE(core::is_null(factors[core::Factor::batch_per_rank]));
  EXPECT_EQ(core::to_text(factors[core::Factor::precision]), "int4");
}

TEST(InferPlan, HasEachPointOnce) {
  const InferFactors once{
      .models = {"a", "b"}, .batches = {1, 16}, .precisions = {Precision::fp32, Precision::int4, Precision::int8}};
  InferFactors twice = once;
  twice.models = {"a", "a", "b"}, twice.batches = {1, 16, 1};
  EXPECT_EQ(plan_infer(twice).size(), plan_infer(once).size());
}

TEST(PairedMean, IsAgrestiAndMinsIntervalOfDiscordantPairs) {
  const double n = 100, b = 7, c = 2;  // right in fp32 alone, right in the precision alone
  const PairedMean m = paired_mean(n, b - c, b + c);
  const double half = 1.959964 * std::sqrt(b + c + 1 - (b - c) * (b - c) / (n + 2)) / (n + 2);
  EXPECT_DOUBLE_EQ(m.value, 0.05);
  EXPECT_NEAR(m.low, (b - c) / (n + 2) - half, 1e-12);
  EXPECT_NEAR(m.high, (b - c) / (n + 2) + half, 1e-12);
  const PairedMean none = paired_mean(n, 0, 0);
  EXPECT_EQ(none.value, 0);
  EXPECT_LT(none.low, -0.01);
  EXPECT_GT(none.high, 0.01);
}

TEST(PairedMean, CoversTheTrueDifferenceNineteenTimesOfTwenty) {
  constexpr int draws = 4000, n = 200;
  const core::Random random(1, 0x9a);
  int covered = 0;
  for (int i = 0; i < draws; ++i) {
    int b = 0, c = 0;
    for (int k = 0; k < n; ++k) {
      const double u = random.uniform(static_cast<std::uint64_t>(i) * n + static_cast<std::uint64_t>(k));
      b += u < 0.03;
      c += u > 0.99;
    }
    const PairedMean m = paired_mean(n, b - c, b + c);
    covered += m.low <= 0.02 && 0.02 <= m.high;
  }
  EXPECT_GT(covered, 0.93 * draws);
  EXPECT_LT(covered, 0.98 * draws);
}

TEST(InferRow, IsWrongWhereTheLogitsCannotBeTheNetworks) {
  const auto status = [](Precision p, double error) {
    core::Point row;
    fill_accuracy({.model = "a", .batch = 1, .precision = p}, {.accuracy = 0.9, .lost = {}, .error = error}, row);
    return row.status;
  };
  EXPECT_EQ(status(Precision::fp32, 1e-6), core::Status::ok);
  EXPECT_EQ(status(Precision::fp32, 0.01), core::Status::wrong);
  EXPECT_EQ(status(Precision::int8, 0.01), core::Status::ok);
  EXPECT_EQ(status(Precision::int8, 1.2), core::Status::wrong);
  EXPECT_EQ(status(Precision::int8, std::nan("")), core::Status::wrong);
}

TEST(InferRow, HasTheTailTheRateOfAllRanksAndTheSpeedup) {
  core::Point fp32, row;
  fp32.metrics[core::Metric::time_s] = 0.008;
  LatencyFindings f{.medians = {0.001, 0.002}, .stop = core::Stop::interval};
  for (int block = 0; block < 8; ++block) {
    std::vector<double> times(50, 0.002);
    times[0] = 0.010;
    f.times.add(times);
  }
  fill_latency(
      {.model = "a", .batch = 4, .precision = Precision::int8}, f, 2, [](int) { return "host"; }, row);
  fill_speedup(fp32, row);
  const auto time = row.metrics[core::Metric::time_s].get<core::Summary>();
  EXPECT_EQ(time.median, 0.002);
  EXPECT_EQ(time.p99, 0.010);
  EXPECT_EQ(row.metrics.number(core::Metric::samples_per_s), 4000);
  EXPECT_EQ(row.metrics.number(core::Metric::speedup), 4);
  EXPECT_EQ(row.metrics.number(core::Metric::ranks_spread), 2);
  EXPECT_EQ(core::to_text(row.metrics[core::Metric::slowest_rank]), "1");
}

TEST(InferRefusal, SaysWhyAPointIsNotToBeHad) {
  const DataFacts digits{.features = 784, .classes = 10};
  EXPECT_EQ(infer_refusal({.model = "mlp", .batch = 1, .precision = Precision::fp32}, digits), "");
  EXPECT_NE(infer_refusal({.model = "rnn", .batch = 1, .precision = Precision::int8}, digits), "");
  EXPECT_NE(
      infer_refusal({.model = "alexnet", .batch = 0, .precision = Precision::int4}, digits).find("does not learn"),
      std::string::npos);
}

TEST(InferAccuracy, AWrongScaleIsAFaultAndRoundingIsNot) {
  const auto fault = [](Precision p, double error) {
    return accuracy_fault(p, {.accuracy = 0.9, .lost = {}, .error = error});
  };
  // Weights with a scale that is off by a third give logits that are off by about as much.
  EXPECT_NE(fault(Precision::int8, 0.33), "");
  EXPECT_EQ(fault(Precision::int8, 0.013), "");
  EXPECT_NE(fault(Precision::bf16, 0.33), "");
  EXPECT_NE(fault(Precision::fp32, 0.013), "");
  EXPECT_EQ(fault(Precision::int4, 0.33), "");
  EXPECT_NE(fault(Precision::int4, std::nan("")), "");
}

}  // namespace
}  // namespace gradmeter::bench
