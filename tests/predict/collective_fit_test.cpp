// SPDX-License-Identifier: Apache-2.0
#include "predict/collective_fit.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <iterator>
#include <random>

#include "core/error.hpp"
#include "core/format.hpp"
#include "support/machines.hpp"

namespace gradmeter::predict {
namespace {

using core::Factor;

core::Machine truth(std::uint32_t node) {
  core::Machine m = gradmeter::test::linked(4e-6, 8e9, 2e10);
  m.ranks_per_node = node;
  m.between_nodes = {.latency_s = 6e-5, .bandwidth = {{.bytes_per_s = 1.2e8}}};
  m.node_port.bytes_per_s = 1.2e8;
  return m;
}

core::Point point(const std::string& algorithm, std::int64_t ranks, std::int64_t bytes, double seconds) {
  core::Point p;
  p.experiment = "allreduce";
  p.factors[Factor::ranks] = ranks;
  p.factors[Factor::nodes] = ranks;
  p.factors[Factor::ranks_per_node] = std::int64_t{1};
  p.factors[Factor::interconnect] = "1gbe";
  p.factors[Factor::transport] = "mpi";
  p.factors[Factor::algorithm] = algorithm;
  p.factors[Factor::codec] = "none";
  p.factors[Factor::size_bytes] = bytes;
  p.factors[Factor::dtype] = "fp32";
  p.factors[Factor::collective] = "allreduce";
  p.metrics[core::Metric::time_s] = seconds;
  return p;
}

/// All algorithms on hosts of one rank each, as the true machine with 2 % of noise would be measured.
core::Run measured(const std::vector<std::int64_t>& ranks) {
  std::mt19937 random(7);
  std::normal_distribution<double> noise(0, 0.02);
  core::Run run;
  for (const char* name : {"ring", "rabenseifner", "recursive-doubling", "direct", "binomial-tree"})
    for (const std::int64_t p : ranks)
      for (const std::int64_t bytes : {1 << 12, 1 << 16, 1 << 20, 1 << 23}) {
        const CollectiveCall call{.algorithm = allreduce::find_algorithm(name),
                                  .shape = {static_cast<std::uint32_t>(p), 1},
                                  .bytes = static_cast<std::size_t>(bytes),
                                  .message_bytes = std::size_t{1} << 20};
        run.points.push_back(point(name, p, bytes, formula_seconds(call, truth(1)) * std::exp(noise(random))));
      }
  return run;
}

std::vector<MeasuredCollective> rows(const std::vector<std::int64_t>& ranks) {
  const core::Run run = measured(ranks);
  return collectives_of({&run, 1}, "own.jsonl");
}

TEST(CollectiveFit, MoreRanksArePredictedFromFew) {
  const auto s = score(CollectiveCalibration(rows({2, 4})), rows({8, 16}), "more.jsonl");
  EXPECT_EQ(s.unpredicted, 0u);
  EXPECT_LT(s.mape.value(), 5);
  EXPECT_GE(s.coverage.value(), 85);
  EXPECT_LT(s.mape.value(), s.linear_mape.value()) << "the naive prediction keeps the bus bandwidth";
}

TEST(CollectiveFit, AWrongAllReduceScoresWorse) {
  auto held = rows({8, 16});
  const CollectiveCalibration calibration(rows({2, 4}));
  const double right = score(calibration, held, "held").mape.value();
  for (auto& c : held) c.bytes *= 2;
  EXPECT_GT(score(calibration, held, "held").mape.value(), 2 * right) << "twice the traffic";
  held = rows({8, 16});
  for (auto& c : held) c.algorithm = "recursive-doubling";
  EXPECT_GT(score(calibration, held, "held").mape.value(), 2 * right) << "another all-reduce";
}

double half_width(const CollectiveCalibration& calibration, const MeasuredCollective& c) {
  const auto p = calibration.predict(c).prediction;
  return std::log(p->high / p->low) / 2;
}

TEST(CollectiveFit, NoiseOfTheMeasurementsWidensIntervals) {
  auto known = rows({2, 4});
  const auto asked = rows({4}).front();
  const auto width_with = [&](std::optional<double> noise) {
    for (auto& c : known) c.noise = noise;
    return half_width(CollectiveCalibration(known), asked);
  };
  const double quiet = width_with(0);
  // Twice the noise, of which the 90 % interval is 1.645 ÷ 1.960.
  const auto wider = [&](double noise) { return std::hypot(quiet, std::sqrt(2.0) * noise * 1.645 / 1.960); };
  EXPECT_NEAR(width_with(0.2), wider(0.2), 1e-3);
  // Measurements without an interval are not exact.
  EXPECT_NEAR(width_with(std::nullopt), wider(noise_without_interval), 1e-3);
}

TEST(CollectiveFit, WhatTheTermsMissWidensIntervalsOfMoreRanks) {
  auto known = rows({2, 4});
  for (auto& c : known)
    if (c.algorithm == "direct") c.seconds *= 2;
  const CollectiveCalibration calibration(known);
  const auto widening = [&](const std::string& algorithm) {
    double sum = 0;
    for (const auto& [ranks, sign] : {std::pair(8, 1), std::pair(4, -1)})
      for (const auto& c : rows({ranks}))
        if (c.algorithm == algorithm) sum += sign * half_width(calibration, c);
    return sum;
  };
  EXPECT_GT(widening("direct"), 2 * widening("ring"));
}

TEST(CollectiveFit, WhatCannotBePredictedHasAReason) {
  const CollectiveCalibration calibration(rows({2, 4}));
  auto other = rows({8});
  other.front().system = "another";
  EXPECT_EQ(calibration.predict(other.front()).reason, "no row of this system was calibrated on");
  other = rows({8});
  other.front().codec = "qsgd4";
  EXPECT_EQ(calibration.predict(other.front()).reason, "codec qsgd4 was not calibrated");
  for (const char* codec : {"terngrad", "terngrad:exchange=sum", "powersgd"}) {
    other.front().codec = codec;
    EXPECT_EQ(calibration.predict(other.front()).reason, fmt::format("codec {} has exchanges of its own", codec));
  }
  other.front().codec = "terngrad:exchange=sra";
  EXPECT_EQ(calibration.predict(other.front()).reason, "codec terngrad:exchange=sra was not calibrated");
}

TEST(CollectiveTable, RowsAreReadWithTheirFaults) {
  const auto table = read_collectives(
      "id,system,gpu,nodes,gpus_per_node,gpus,op,bytes,dtype,time_us\n"
      "a,DGX,A100,1,8,8,allreduce,1048576,float,50\n"
      "b,DGX,A100,1,8,8,allgatherv,1048576,float,50\n"
      "c,DGX,A100,1,8,8,allreduce,many,float,50\n",
      "t.csv");
  ASSERT_EQ(table.size(), 3u);
  EXPECT_EQ(table[0].problem, "");
  EXPECT_DOUBLE_EQ(table[0].seconds, 50e-6);
  EXPECT_EQ(table[1].problem, "no model of the operation 'allgatherv'");
  EXPECT_NE(table[2].problem, "");
  EXPECT_THROW(read_collectives("system,op\nx,allreduce\n", "t.csv"), core::UsageError);
}

MeasuredCollective only_call(const std::string& text) { return read_collectives(text, "t.csv").at(0); }

TEST(CollectiveTable, NodesWithoutGpusPerNodeSplitTheGpus) {
  const std::string head = "system,gpus,nodes,op,bytes,time_us\n";
  EXPECT_EQ(only_call(head + "S,16,2,allreduce,1048576,400\n").shape.ranks_per_node, 8u);
  EXPECT_EQ(only_call(head + "S,16,1,allreduce,1048576,400\n").shape.ranks_per_node, 16u);
}

TEST(CollectiveTable, GpusThat32BitsDoNotHoldAreTheRowsProblem) {
  EXPECT_THAT(only_call("system,gpus,op,bytes,time_us\nS,4294967298,allreduce,1048576,400\n").problem,
              ::testing::HasSubstr("'4294967298' is above"));
}

TEST(CollectiveTable, IsKnownByItsHeadBehindComments) {
  EXPECT_TRUE(is_collective_table("system,gpus,op,bytes,time_us\n"));
  EXPECT_TRUE(is_collective_table("# made by nccl-tests\n\nsystem,gpus,\"op\",bytes,time_us\nS,2,allreduce,8,1\n"));
  EXPECT_FALSE(is_collective_table("# op,op\nsystem,gpus\n"));
}

TEST(CollectiveFit, SaysWhereNoRowCouldBeLeftOut) {
  const auto some = rows({2, 4});
  EXPECT_THAT(CollectiveCalibration(some).text(), ::testing::HasSubstr("rows of 1 MiB that were left out within"));
  EXPECT_THAT(CollectiveCalibration({some.front()}).text(), ::testing::HasSubstr("no row could be left out"));
}

/// Behind a switch all pairs have one rate. (Of the V100's mesh two GPUs share one link and four more: what two say of
/// four is wrong by a factor.)
TEST(CollectiveTable, NcclOnFourGpusOfASwitchIsPredictedFromTwo) {
  const std::string path = std::string(GRADMETER_PREDICT_DATA) + "/vtrain_nccl_lut_thin.csv";
  std::ifstream in(path, std::ios::binary);
  std::vector<MeasuredCollective> two, four;
  for (const auto& c : read_collectives(std::string(std::istreambuf_iterator<char>(in), {}), path))
    if (c.system == "DGX A100") (c.shape.ranks == 2 ? two : four).push_back(c);
  const auto s = score(CollectiveCalibration(two), four, path);
  EXPECT_EQ(s.rows, 20u);
  EXPECT_EQ(s.unpredicted, 0u);
  EXPECT_LT(s.mape.value(), 15);
}

}  // namespace
}  // namespace gradmeter::predict
