// SPDX-License-Identifier: Apache-2.0
#include "report/page/rows.hpp"

#include <gtest/gtest.h>

#include <array>

namespace gradmeter::report {
namespace {

using core::Factor;
using core::Metric;

core::Point exchange(const char* codec, const char* interconnect, double seconds) {
  core::Point p;
  p.experiment = "allreduce";
  p.factors[Factor::codec] = std::string(codec);
  p.factors[Factor::interconnect] = std::string(interconnect);
  p.factors[Factor::size_bytes] = std::int64_t{4096};
  p.metrics[Metric::time_s] = core::Summary{.median = seconds, .ci95_low = seconds * 0.9, .ci95_high = seconds * 1.1};
  return p;
}

TEST(PageRows, GainOfACodecIsAgainstTheSamePointWithout) {
  core::Run run;
  run.points = {exchange("qsgd4", "fast", 4e-3), exchange("none", "fast", 2e-3), exchange("none", "slow", 8e-3),
                exchange("qsgd4", "slow", 1e-3), exchange("qsgd4", "alone", 1e-3)};
  run.points.push_back(exchange("bf16", "slow", 4e-3));
  run.points.back().status = core::Status::mistrusted;
  const std::array sides{analysis::Side{.name = "a", .runs = {run}}};
  const auto rows = make_separate_rows(sides).rows;
  ASSERT_EQ(rows.size(), 6U);
  EXPECT_DOUBLE_EQ(rows[0].number("codec_gain"), 0.5);
  EXPECT_DOUBLE_EQ(rows[3].number("codec_gain"), 8);
  EXPECT_NEAR(rows[3].number("codec_gain_ci95_low"), 8 * 0.9 / 1.1, 1e-4);
  EXPECT_NEAR(rows[3].number("codec_gain_ci95_high"), 8 * 1.1 / 0.9, 1e-4);
  for (const std::size_t without : {1, 2, 4, 5}) EXPECT_FALSE(rows[without].has("codec_gain")) << without;
}

core::Point step(std::int64_t ranks, const char* gradients) {
  core::Point p;
  p.experiment = "scale";
  p.factors[Factor::ranks] = ranks;
  if (*gradients) p.factors[Factor::gradients] = std::string(gradients);
  return p;
}

TEST(PageRows, WithAFactorAndWithoutAreTwoCurves) {
  core::Run run;
  run.points = {step(8, ""), step(8, "bf16")};
  std::array sides{analysis::Side{.name = "a", .runs = {run}}};
  auto rows = make_separate_rows(sides).rows;
  EXPECT_NE(rows.at(0).text("series"), rows.at(1).text("series"));
  // But one rank has no exchange whose gradients could be of any type: that is no other curve.
  sides[0].runs[0].points = {step(1, ""), step(8, "bf16")};
  rows = make_separate_rows(sides).rows;
  EXPECT_EQ(rows.at(0).text("series"), rows.at(1).text("series"));
}

core::Point trained(std::int64_t ranks, const char* model, const char* codec, double samples_per_s) {
  core::Point p = step(ranks, "");
  p.factors[Factor::model] = std::string(model);
  p.factors[Factor::batch_per_rank] = std::int64_t{16};
  p.factors[Factor::precision] = std::string("fp32");
  p.factors[Factor::strategy] = std::string(ranks == 1 ? "independent" : "sync");
  if (ranks > 1) p.factors[Factor::codec] = std::string(codec);
  p.metrics[Metric::time_s] = core::Summary{.median = 1e-3, .ci95_low = 0.9e-3, .ci95_high = 1.1e-3};
  p.metrics[Metric::samples_per_s] = samples_per_s;
  p.metrics[Metric::efficiency] = 0.5;
  p.metrics[Metric::efficiency_ci95_low] = 0.4;
  return p;
}

TEST(PageRows, SayInWordsWhatWasChosenAndUnderWhichConditions) {
  core::Run run;
  run.points = {trained(2, "lenet5", "qsgd4:bucket=512,ef=off", 100), trained(2, "mlp:784-64-10", "none", 100)};
  std::array sides{analysis::Side{.name = "a", .runs = {run}}};
  auto rows = make_rows(sides).rows;
  EXPECT_EQ(rows.at(0).text("series"), "4-bit gradients");
  EXPECT_EQ(rows.at(0).text("panel"), "lenet5");
  EXPECT_EQ(rows.at(1).text("panel"), "mlp:784-64-10");
  // Parameters are named only where they differ.
  sides[0].runs[0].points[1].factors[Factor::codec] = std::string("qsgd4:bucket=128,ef=off");
  rows = make_rows(sides).rows;
  EXPECT_EQ(rows.at(0).text("series"), "4-bit gradients (bucket=512)");
  // A point without figures makes no difference to name.
  sides[0].runs[0].points[1].status = core::Status::unsupported;
  EXPECT_EQ(make_rows(sides).rows.at(0).text("panel"), "");
}

TEST(PageRows, LaunchesOfTwoMachinesOrBuildsAreNotMerged) {
  core::Run run;
  run.points = {trained(2, "lenet5", "none", 100)};
  run.info.commit = "aaaa";
  run.info.fingerprint = "f";
  std::array sides{analysis::Side{.name = "a", .runs = {run, run}}};
  ASSERT_EQ(make_rows(sides).rows.size(), 1U);
  EXPECT_EQ(make_rows(sides).rows[0].whole("launches"), 2);
  sides[0].runs[1].info.commit = "bbbb";
  auto rows = make_rows(sides).rows;
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[1].text("series"), "commit bbbb");
  sides[0].runs[1].info.commit = "aaaa";
  sides[0].runs[1].info.cpu = "other";
  sides[0].runs[1].info.fingerprint = "g";
  rows = make_rows(sides).rows;
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[1].text("panel"), "other");
}

// Logs of other tools name no processor.
TEST(PageRows, MachinesWithoutAProcessorAreNamedByWhatTheirLogsSay) {
  core::Run run;
  run.points = {trained(2, "lenet5", "none", 100)};
  run.info.fingerprint = "f";
  run.info.command = "imported from a.log";
  std::array sides{analysis::Side{.name = "a", .runs = {run, run, run}}};
  auto& runs = sides[0].runs;
  runs[1].info.fingerprint = "g";
  runs[1].info.hosts = {"node01", "node02"};
  runs[2].info.fingerprint = "h";
  runs[2].info.gpus = {"H100", "H100"};
  const auto rows = make_rows(sides).rows;
  ASSERT_EQ(rows.size(), 3U);
  EXPECT_EQ(rows[0].text("panel"), "imported from a.log");
  EXPECT_EQ(rows[1].text("panel"), "node01");
  EXPECT_EQ(rows[2].text("panel"), "H100");
}

TEST(PageRows, DoubtIsNamed) {
  core::Run run;
  run.points = {trained(2, "lenet5", "none", 100), trained(2, "lenet5", "none", 100),
                trained(1, "lenet5", "none", 100)};
  run.points[1].metrics[Metric::efficiency] = 2.56;
  run.points[1].metrics[Metric::efficiency_ci95_low] = {};
  run.points[1].metrics[Metric::oversubscribed] = true;
  const std::array sides{analysis::Side{.name = "a", .runs = {run}}};
  const auto rows = make_separate_rows(sides).rows;
  EXPECT_FALSE(rows.at(0).has("doubt"));
  EXPECT_EQ(rows.at(1).text("doubt"), "more threads than cores; above 100 %; no interval");
  EXPECT_FALSE(rows.at(2).has("doubt"));
}

TEST(PageRows, SpeedUpIsAgainstOneRankInFp32OfTheSameNetwork) {
  core::Run run;
  run.points = {trained(1, "lenet5", "", 100), trained(1, "mlp:784-64-10", "", 400), trained(2, "lenet5", "none", 150),
                trained(2, "mlp:784-64-10", "bf16", 600), trained(1, "lenet5", "", 130)};
  run.points[4].factors[Factor::precision] = std::string("bf16");
  const std::array sides{analysis::Side{.name = "a", .runs = {run}}};
  const auto rows = make_separate_rows(sides).rows;
  EXPECT_DOUBLE_EQ(rows.at(2).number("fp32_speedup"), 1.5);
  EXPECT_NEAR(rows.at(2).number("fp32_speedup_ci95_low"), 1.5 * 0.9 / 1.1, 1e-4);
  EXPECT_DOUBLE_EQ(rows.at(3).number("fp32_speedup"), 1.5);
  EXPECT_DOUBLE_EQ(rows.at(4).number("fp32_speedup"), 1.3);
  EXPECT_FALSE(rows.at(0).has("fp32_speedup"));
}

TEST(PageRows, CurvesBeginAtOneRankOfTheSameConditions) {
  core::Run run;
  run.points = {trained(1, "mlp:784-64-10", "", 400), trained(1, "lenet5", "", 100), trained(2, "lenet5", "none", 150),
                trained(2, "lenet5", "bf16", 150)};
  const std::array sides{analysis::Side{.name = "a", .runs = {run}}};
  const auto starts = make_rows(sides).curve_starts;
  ASSERT_EQ(starts.size(), 2U);
  for (const auto& start : starts) EXPECT_EQ(start.text("model"), "lenet5");
  EXPECT_EQ(starts[1].text("series"), "bf16 gradients");
}

TEST(PageRows, FilesAreNamedByTheirLabel) {
  std::array sides{analysis::Side{.name = "runs/a/before.jsonl", .runs = {}},
                   analysis::Side{.name = "runs/b/before.jsonl", .runs = {}},
                   analysis::Side{.name = "/results/after.jsonl", .runs = {}}};
  name_by_file(sides);
  EXPECT_EQ(sides[0].name, "a/before");
  EXPECT_EQ(sides[1].name, "b/before");
  EXPECT_EQ(sides[2].name, "after");
}

TEST(PageRows, ColumnsHaveTheWordsOfTheCharts) {
  EXPECT_EQ(column_words("batch_per_rank"), "mini-batch of a rank");
  EXPECT_EQ(column_words("busbw_bytes_per_s"), "bus bandwidth [B/s]");
  EXPECT_EQ(column_words("ranks"), "ranks");
  EXPECT_EQ(column_words("loss_scale"), "loss scale");
}

}  // namespace
}  // namespace gradmeter::report
