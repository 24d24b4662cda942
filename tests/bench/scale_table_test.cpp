// SPDX-License-Identifier: Apache-2.0
#include "bench/scale/scale.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <utility>

#include "core/format.hpp"

namespace gradmeter::bench {
namespace {

using core::Factor;
using core::Metric;
using core::Point;
using ::testing::HasSubstr;
using ::testing::Not;

Point point(std::int64_t ranks, const char* strategy, double seconds) {
  Point p;
  p.experiment = "scale";
  p.factors[Factor::model] = std::string("mlp:784-10");
  p.factors[Factor::ranks] = ranks;
  p.factors[Factor::batch_per_rank] = std::int64_t{16};
  p.factors[Factor::threads] = std::int64_t{1};
  p.factors[Factor::cadence] = std::string("barrier");
  p.factors[Factor::strategy] = std::string(strategy);
  core::Summary time;
  time.median = seconds;
  time.ci95_low = seconds * 0.9;
  time.ci95_high = seconds * 1.1;
  p.metrics[Metric::time_s] = time;
  p.metrics[Metric::baseline_time_s] = seconds;
  p.metrics[Metric::efficiency] = 0.87;
  p.metrics[Metric::bound_by] = std::string("wire");
  return p;
}

TEST(ScaleTable, ACurveNamesItsBaselineAndEachRowItsIntervalAndLimit) {
  const std::string text = scale_tables(std::vector{point(1, "independent", 0.0123)});
  EXPECT_THAT(text, HasSubstr("baseline: 1 rank, batch 16, 12.3 ms a step"));
  EXPECT_THAT(text, HasSubstr("11.1–13.5"));
  EXPECT_THAT(text, HasSubstr("wire"));
  EXPECT_THAT(text, HasSubstr("87"));
}

TEST(ScaleTable, PointsOfOtherCircumstancesAreOtherCurves) {
  const Point usual = point(2, "sync", 0.1);
  const std::string alike = scale_tables(std::vector{usual});
  for (const auto& [factor, value] : std::vector<std::pair<Factor, const char*>>{{Factor::device, "cuda"},
                                                                                 {Factor::inject, "slow:rank=1"},
                                                                                 {Factor::interconnect, "100GbE"},
                                                                                 {Factor::optimizer, "adamw"},
                                                                                 {Factor::ranks_as, "threads"}}) {
    Point other = usual;
    other.factors[factor] = std::string(value);
    const std::string text = scale_tables(std::vector{usual, other});
    EXPECT_THAT(text, HasSubstr(fmt::format("cadence barrier · {}", factor == Factor::inject ? "inject " : value)));
    EXPECT_THAT(text, HasSubstr(alike.substr(0, alike.find('\n')) + "\n")) << "both have a heading";
  }
  Point plain = usual;
  plain.factors[Factor::device] = std::string("cpu");
  plain.factors[Factor::ranks_as] = std::string("processes");
  EXPECT_EQ(scale_tables(std::vector{plain}), alike);
}

TEST(ScaleTable, RowsStandWithRanksGrowingWhateverTheOrderTheyCameIn) {
  const std::string text =
      scale_tables(std::vector{point(4, "sync", 0.4), point(1, "sync", 0.1), point(1, "independent", 0.2)});
  EXPECT_LT(text.find("200"), text.find("100"));
  EXPECT_LT(text.find("100"), text.find("400"));
}

TEST(ScaleTable, AMissingBaselineIsSaidAndNoEfficiencyInvented) {
  Point p = point(2, "sync", 0.1);
  p.metrics[Metric::efficiency] = core::Value{};
  p.metrics[Metric::baseline_time_s] = core::Value{};
  EXPECT_THAT(scale_tables(std::vector{p}), HasSubstr("no baseline was measured"));
}

TEST(ScaleTable, NoiseAndCrowdingAreMarked) {
  Point quiet = point(1, "sync", 0.05), noisy = quiet;
  EXPECT_THAT(scale_tables(std::vector{quiet}), Not(HasSubstr("~")));
  noisy.metrics[Metric::noise_run_delay] = 0.2;
  EXPECT_THAT(scale_tables(std::vector{noisy}), HasSubstr("50.0~"));
  Point crowded = noisy;  // its threads wait for each other
  crowded.metrics[Metric::oversubscribed] = true;
  EXPECT_THAT(scale_tables(std::vector{crowded}), HasSubstr("1*"));
  EXPECT_THAT(scale_tables(std::vector{crowded}), Not(HasSubstr("50.0~")));
  crowded.metrics[Metric::noise_steal] = 0.2;
  EXPECT_THAT(scale_tables(std::vector{crowded}), HasSubstr("50.0~"));
}

TEST(ScaleTable, AVerdictStandsWithItsProbability) {
  Point p = point(2, "sync", 0.1);
  EXPECT_THAT(scale_tables(std::vector{p}), HasSubstr("wire\n")) << "an older file has none";
  p.metrics[Metric::bound_by_probability] = 0.93;
  EXPECT_THAT(scale_tables(std::vector{p}), HasSubstr("wire 93 %\n"));
  p.metrics[Metric::bound_by_probability] = 1.0;
  EXPECT_THAT(scale_tables(std::vector{p}), HasSubstr("wire 99 %\n"));
}

TEST(ScaleTable, WithoutAVerdictTheRowSaysWhatWouldDecide) {
  Point p = point(2, "sync", 0.1);
  p.metrics[Metric::bound_by] = std::string("undecided");
  EXPECT_THAT(scale_tables(std::vector{p}), Not(HasSubstr("would decide"))) << "an older file has no candidates";
  p.metrics[Metric::bound_by_probability] = 0.55;
  p.metrics[Metric::bound_by_candidates] = std::string("wire 55 %, straggle 40 %");
  EXPECT_THAT(scale_tables(std::vector{p}),
              HasSubstr("undecided: wire 55 %, straggle 40 %; a longer --time-budget would decide\n"));
  p.metrics[Metric::noise_steal] = 0.2;
  EXPECT_THAT(scale_tables(std::vector{p}), HasSubstr("straggle 40 %; quieter cores would decide\n"));
}

TEST(ScaleTable, AnEfficiencyThatProvesNothingIsMarked) {
  Point p = point(2, "sync", 0.1);
  const auto shown = [&](double efficiency, double low, double high) {
    p.metrics[Metric::efficiency] = efficiency;
    p.metrics[Metric::efficiency_ci95_low] = low;
    p.metrics[Metric::efficiency_ci95_high] = high;
    return scale_tables(std::vector{p});
  };
  constexpr double unknown = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THAT(shown(2.56, unknown, unknown), HasSubstr(" 256 ? "));
  EXPECT_THAT(shown(0.63, unknown, unknown), HasSubstr(" 63 ? "));
  EXPECT_THAT(shown(1.2, 1.1, 1.3), HasSubstr(" 120 (110–130) ? "));
  EXPECT_THAT(shown(1.02, 0.97, 1.07), Not(HasSubstr("?")));
  EXPECT_THAT(scale_tables(std::vector{point(1, "independent", 0.1)}), Not(HasSubstr("?"))) << "100 % by definition";
}

// The canary alone said 97 % over rows whose threads stood still for two thirds of the time.
TEST(ScaleTable, TheMachineIsAsSteadyAsItsRowsSay) {
  Point quiet = point(1, "independent", 0.1);
  quiet.metrics[Metric::steadiness] = 0.97;
  quiet.metrics[Metric::blocks] = std::int64_t{10};
  quiet.metrics[Metric::left_out_blocks] = std::int64_t{2};
  quiet.metrics[Metric::disturbed_blocks] = std::int64_t{0};
  Point delayed = quiet, stolen = quiet, shaken = quiet, crowded = quiet;
  delayed.metrics[Metric::noise_run_delay] = 0.66;
  stolen.metrics[Metric::noise_steal] = 0.125;
  shaken.metrics[Metric::disturbed_blocks] = std::int64_t{6};
  crowded.metrics[Metric::noise_run_delay] = 0.9;
  crowded.metrics[Metric::oversubscribed] = true;
  EXPECT_THAT(scale_tables(std::vector{quiet, crowded}),
              HasSubstr("machine: at least 97 % steady; 0 of 20 blocks used were disturbed, 4 others left out\nranks"));
  EXPECT_THAT(
      scale_tables(std::vector{quiet, delayed, stolen, shaken}),
      HasSubstr(
          "machine: at least 34 % steady; 6 of 40 blocks used were disturbed, 8 others left out\n"
          "disturbed: 3 of 4 points: 1 waited for a core (up to 66 % of the time), 1 lost cores to the hypervisor (up "
          "to 12 %), 1 with most blocks disturbed\n"));
}

TEST(ScaleTable, WhatAllRowsHaveToSayStandsOnce) {
  std::vector<Point> rows{point(1, "independent", 0.1), point(2, "independent", 0.1), point(2, "sync", 0.1)};
  for (Point& p : rows) p.reason = "bf16 is multiplied in tiles";
  rows.back().reason += "; of this row alone";
  const std::string text = scale_tables(rows);
  const auto at = text.find("bf16 is multiplied in tiles\n");
  EXPECT_LT(at, text.find("efficiency"));
  EXPECT_EQ(text.find("bf16 is multiplied", at + 1), std::string::npos);
  EXPECT_THAT(text, HasSubstr("    of this row alone"));
  rows.front().reason.clear();
  EXPECT_THAT(scale_tables(rows), HasSubstr("    bf16 is multiplied in tiles; of this row alone"));
}

TEST(ScaleTable, ARowThatWasNotMeasuredShowsWhy) {
  Point p = point(3, "sync", 0.1);
  p.status = core::Status::skipped;
  p.reason = "batch 16 does not divide by 3 ranks";
  EXPECT_THAT(scale_tables(std::vector{p}), HasSubstr("skipped: batch 16 does not divide by 3 ranks"));
}

}  // namespace
}  // namespace gradmeter::bench
