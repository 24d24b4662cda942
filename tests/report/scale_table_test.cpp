#include "report/tables.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace gradmeter::report {
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

TEST(ScaleTable, ARowThatWasNotMeasuredShowsWhy) {
  Point p = point(3, "sync", 0.1);
  p.status = core::Status::skipped;
  p.reason = "batch 16 does not divide by 3 ranks";
  EXPECT_THAT(scale_tables(std::vector{p}), HasSubstr("skipped: batch 16 does not divide by 3 ranks"));
}

}  // namespace
}  // namespace gradmeter::report
