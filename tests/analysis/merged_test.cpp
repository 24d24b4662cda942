// SPDX-License-Identifier: Apache-2.0
#include "analysis/launches.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "analysis/comparison.hpp"
#include "timed_launches.hpp"

namespace gradmeter::analysis {
namespace {

using core::Metric;

TEST(MergedLaunches, HaveTheGeometricMeanAndItsIntervalOverLaunches) {
  const auto merged = merge_launches(timed_side("a", {{1.0, 5.0}, {1.2, 5.5}, {1.1, 6.0}}).runs);
  ASSERT_EQ(merged.size(), 2u);
  EXPECT_EQ(merged[0].launches, 3u);
  const auto& time = merged[0].point.metrics[Metric::time_s].get<core::Summary>();
  const std::vector values{1.0, 1.2, 1.1};
  EXPECT_EQ(time.median, geometric_mean(values));
  EXPECT_EQ(time.ci95_low, launch_interval(values).low);
  EXPECT_EQ(time.ci95_high, launch_interval(values).high);
}

// Six launches had 80 % and four had 40 %, and the row said 80 % (47-78 %).
TEST(MergedLaunches, LieWithinTheirIntervals) {
  Side side = timed_side("a", std::vector<std::vector<double>>(10, {1.0}));
  std::vector<double> values;
  for (std::size_t i = 0; i < 10; ++i) {
    values.push_back(i < 6 ? 0.8 : 0.4);
    auto& m = side.runs[i].points[0].metrics;
    m[Metric::efficiency] = values.back();
    m[Metric::efficiency_ci95_low] = 0.1;
    core::Summary time;
    time.median = 1e-3 / values.back();
    time.q1 = 0.9 * time.median;
    time.q3 = 1.1 * time.median;
    m[Metric::time_s] = time;
    m[Metric::busbw_bytes_per_s] = 8 / time.median;
  }
  const core::Metrics m = merge_launches(side.runs).front().point.metrics;
  EXPECT_EQ(m.number(Metric::efficiency), geometric_mean(values));
  EXPECT_EQ(m.number(Metric::efficiency_ci95_low), launch_interval(values).low);
  const auto& time = m[Metric::time_s].get<core::Summary>();
  EXPECT_LT(time.ci95_low, time.median);
  EXPECT_LT(time.median, time.ci95_high);
  EXPECT_LT(time.q1, time.median);
  EXPECT_LT(time.median, time.q3);
  EXPECT_NEAR(m.number(Metric::busbw_bytes_per_s) * time.median, 8, 1e-9) << "a rate is still that of its time";
}

TEST(MergedLaunches, ThatAgreeInAllDigitsHaveNoIntervalButTheirOwn) {
  Side side = timed_side("a", {{1.01}, {1.01}, {1.01}});
  const auto merged = [&side] {
    return merge_launches(side.runs).front().point.metrics[Metric::time_s].get<core::Summary>();
  };
  for (auto& run : side.runs) {
    auto time = run.points[0].metrics[Metric::time_s].get<core::Summary>();
    time.ci95_low = time.ci95_high = std::nan("");
    run.points[0].metrics[Metric::time_s] = time;
  }
  EXPECT_EQ(merged().median, 1.01);
  EXPECT_TRUE(std::isnan(merged().ci95_low) && std::isnan(merged().ci95_high));
  for (auto& run : side.runs) {
    auto time = run.points[0].metrics[Metric::time_s].get<core::Summary>();
    time.ci95_low = 1.0;
    time.ci95_high = 1.02;
    run.points[0].metrics[Metric::time_s] = time;
  }
  EXPECT_EQ(merged().ci95_low, 1.0);
  EXPECT_EQ(merged().ci95_high, 1.02);
}

TEST(MergedLaunches, MixNoAccuraciesAfterUnlikeNumbersOfSamples) {
  Side side = timed_side("a", {{1.0}, {1.0}, {1.0}});
  for (std::size_t i = 0; i < 3; ++i) {
    auto& m = side.runs[i].points[0].metrics;
    m[Metric::learn_samples] = std::vector<std::int64_t>{20000, 2000, 20000}[i];
    m[Metric::accuracy_at_samples] = std::vector{0.96, 0.2, 0.98}[i];
    m[Metric::accuracy_at_time] = std::vector{0.9, 0.1, 0.9}[i];
  }
  const core::Metrics m = merge_launches(side.runs).front().point.metrics;
  EXPECT_EQ(m.number(Metric::learn_samples), 20000);
  EXPECT_NEAR(m.number(Metric::accuracy_at_samples), 0.97, 1e-12);
  EXPECT_NEAR(m.number(Metric::accuracy_at_time), 0.9, 1e-12);
}

// The ends of an interval are metrics of their own: those of one launch would contradict the value of all.
TEST(MergedLaunches, HaveTheEndsOfTheirOwnInterval) {
  Side side = timed_side("a", {{1.0}, {1.0}});
  const std::vector efficiencies{0.8, 0.9}, exposed{0.1, -0.1};
  for (std::size_t i = 0; i < 2; ++i) {
    auto& m = side.runs[i].points[0].metrics;
    m[Metric::efficiency] = efficiencies[i];
    m[Metric::efficiency_ci95_low] = 0.0;
    m[Metric::efficiency_ci95_high] = 0.0;
    m[Metric::exposed_s] = exposed[i];
    m[Metric::exposed_ci95_low] = exposed[i] - 0.05;
    m[Metric::exposed_ci95_high] = exposed[i] + 0.05;
    m[Metric::accuracy_lost] = 0.001;
    m[Metric::accuracy_lost_ci95_low] = i == 0 ? -0.002 : std::nan("");
  }
  const auto merged = merge_launches(side.runs);
  const core::Metrics& m = merged.front().point.metrics;
  EXPECT_EQ(m.number(Metric::efficiency), geometric_mean(efficiencies));
  EXPECT_EQ(m.number(Metric::efficiency_ci95_low), launch_interval(efficiencies).low);
  EXPECT_EQ(m.number(Metric::efficiency_ci95_high), launch_interval(efficiencies).high);
  // A number that may be below 0 has no logarithm, so its interval holds those of all launches.
  EXPECT_NEAR(m.number(Metric::exposed_ci95_low), -0.15, 1e-12);
  EXPECT_NEAR(m.number(Metric::exposed_ci95_high), 0.15, 1e-12);
  EXPECT_TRUE(std::isnan(m.number(Metric::accuracy_lost_ci95_low))) << "that of a launch is not known";
}

// The last launch's word stood beside the median of probabilities of others.
TEST(MergedLaunches, HaveOneVerdict) {
  struct Said {
    const char *bound_by, *candidates;
    double probability;
  };
  const auto merged = [](std::initializer_list<Said> launches) {
    Side side = timed_side("a", std::vector<std::vector<double>>(launches.size(), {1.0}));
    std::size_t i = 0;
    for (const Said& said : launches) {
      auto& m = side.runs[i++].points[0].metrics;
      m[Metric::bound_by] = std::string(said.bound_by);
      if (*said.candidates) m[Metric::bound_by_candidates] = std::string(said.candidates);
      if (*said.candidates) m[Metric::bound_by_probability] = said.probability;
    }
    return merge_launches(side.runs).front().point.metrics;
  };
  const auto wire =
      merged({{"wire", "wire 95 %, straggle 5 %", 0.95}, {"undecided", "wire 55 %, straggle 45 %", 0.55}});
  EXPECT_EQ(core::to_text(wire[Metric::bound_by]), "wire");
  EXPECT_NEAR(wire.number(Metric::bound_by_probability), 0.75, 1e-12);
  EXPECT_EQ(core::to_text(wire[Metric::bound_by_candidates]), "wire 75 %, straggle 25 %");
  const auto open = merged({{"wire", "wire 90 %, compute 10 %", 0.9}, {"compute", "compute 99 %", 0.99}});
  EXPECT_EQ(core::to_text(open[Metric::bound_by]), "undecided");
  EXPECT_NEAR(open.number(Metric::bound_by_probability), 0.545, 1e-12);
  const auto explained = merged({{"undecided", "compute 85 %, wire 15 %", 0.85}, {"compute", "compute 90 %", 0.9}});
  EXPECT_EQ(core::to_text(explained[Metric::bound_by]), "undecided")
      << "a loss is shown, and only the machine explains it";
  EXPECT_EQ(core::to_text(merged({{"compute", "", 0}, {"compute", "", 0}})[Metric::bound_by]), "compute");
  EXPECT_EQ(core::to_text(merged({{"compute", "", 0}, {"wire", "", 0}})[Metric::bound_by]), "undecided");
}

TEST(MergedLaunches, NameARankThatMostOfThemName) {
  const auto merged = [](std::initializer_list<std::int64_t> ranks) {
    Side side = timed_side("a", std::vector<std::vector<double>>(ranks.size(), {1.0}));
    std::size_t i = 0;
    for (const auto rank : ranks) {
      if (rank >= 0) side.runs[i].points[0].metrics[Metric::slowest_rank] = rank;
      ++i;
    }
    return merge_launches(side.runs).front().point.metrics;
  };
  EXPECT_EQ(merged({3, 1, 3}).number(Metric::slowest_rank), 3);
  EXPECT_TRUE(core::is_null(merged({-1, -1, 3})[Metric::slowest_rank]));
  EXPECT_TRUE(core::is_null(merged({1, 2, 3})[Metric::slowest_rank]));
}

TEST(MergedLaunches, KeepWhatWentWrongApartAndWhatWasCrowdedMarked) {
  Side side = timed_side("a", {{1.0}, {1.0}, {1.0}});
  side.runs[0].points[0].metrics[Metric::oversubscribed] = true;
  side.runs[1].points[0].metrics[Metric::oversubscribed] = false;
  side.runs[2].points[0].status = core::Status::wrong;
  const auto merged = merge_launches(side.runs);
  ASSERT_EQ(merged.size(), 2u);
  EXPECT_EQ(merged[0].launches, 2u);
  EXPECT_TRUE(merged[0].point.metrics[Metric::oversubscribed].get<bool>());
  EXPECT_EQ(merged[1].point.status, core::Status::wrong);
}

// Two machines are no replicates of each other, and neither are two builds.
TEST(MergedLaunches, AreOfOneMachineAndBuild) {
  const auto with = [](auto change) {
    Side side = timed_side("a", {{0.010}, {0.030}});
    change(side.runs[1].info);
    return merge_launches(side.runs);
  };
  const auto machines = with([](core::RunInfo& i) { i.fingerprint = "other"; });
  ASSERT_EQ(machines.size(), 2u);
  EXPECT_EQ(machines[0].point.metrics.number(Metric::time_s), 0.010);
  EXPECT_EQ(machines[1].point.metrics.number(Metric::time_s), 0.030);
  EXPECT_EQ(machines[1].sources, (std::vector<SourceRow>{{.run = 1, .point = 0}}));
  EXPECT_EQ(with([](core::RunInfo& i) { i.commit = "1a2b"; }).size(), 2u);
  EXPECT_EQ(with([](core::RunInfo& i) { i.version = "2.0.0"; }).size(), 2u);
  EXPECT_EQ(with([](core::RunInfo& i) { i.libraries["oneDNN"] = "3.0"; }).size(), 2u);
  EXPECT_EQ(with([](core::RunInfo& i) { i.hosts = {"another"}; }).size(), 1u);  // the job got another node
}

// It belongs to the spans, of which there is no median.
TEST(MergedLaunches, HaveTheTimelineOfTheLast) {
  Side side = timed_side("a", {{1.0}, {1.0}, {1.0}});
  for (std::size_t i = 0; i < 3; ++i) {
    auto& m = side.runs[i].points[0].metrics;
    m[Metric::timeline_step_s] = std::vector{3.0, 1.0, 4.0}[i];
    m[Metric::timeline_compute] = core::Spans{{.name = std::to_string(i), .begin_s = 0, .end_s = 1}};
  }
  const core::Metrics m = merge_launches(side.runs).front().point.metrics;
  EXPECT_EQ(m.number(Metric::timeline_step_s), 4.0);
  EXPECT_EQ(m[Metric::timeline_compute].get<core::Spans>().at(0).name, "2");
}

TEST(MergedLaunches, OfOneAreAsTheyWere) {
  const auto merged = merge_launches(timed_side("a", {{1.5}}).runs);
  ASSERT_EQ(merged.size(), 1u);
  EXPECT_EQ(merged[0].point.metrics.number(Metric::time_s), 1.5);
}

}  // namespace
}  // namespace gradmeter::analysis
