// SPDX-License-Identifier: Apache-2.0
#include "analysis/links.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <functional>
#include <random>

#include "analysis/findings.hpp"
#include "core/format.hpp"

namespace gradmeter::analysis {
namespace {

using core::Factor;
using core::Metric;

constexpr int soak_ranks = 8, soak_intervals = 120;
constexpr double interval_s = 2, usual_window_s = 1e-3;

/// Times the usual of a rank's windows in an interval.
using Slowness = std::function<double(int rank, int interval)>;

/// A soak whose ranks differ by nature, with noise of a hundredth on every interval.
std::vector<core::Point> soak(
    const Slowness& slowness, const Slowness& longest = [](int, int) { return 1.2; }) {
  std::mt19937 draw(5);
  std::normal_distribution<double> noise(1, 0.01);
  std::vector<core::Point> out;
  for (int i = 0; i < soak_intervals; ++i) {
    for (int rank = 0; rank < soak_ranks; ++rank) {
      core::Point p;
      p.experiment = "soak";
      p.factors[Factor::from_rank] = std::int64_t{rank};
      p.factors[Factor::interval] = std::int64_t{i};
      p.metrics[Metric::from_host] = fmt::format("host{}", rank + 1);
      p.metrics[Metric::elapsed_s] = interval_s * (i + 0.5);
      const double usual = usual_window_s * (1 + 0.2 * rank);
      core::Summary s{.median = usual * slowness(rank, i) * noise(draw)};
      s.max = usual * longest(rank, i);
      s.n = 20;
      p.metrics[Metric::time_s] = s;
      out.push_back(p);
    }
  }
  return out;
}

double even(int, int) { return 1; }

TEST(Soak, ASteadyOneHasNothingToSay) {
  const auto found = soak_findings(soak(even));
  EXPECT_EQ(found.intervals, std::size_t{soak_intervals});
  EXPECT_THAT(soak_sentences(found), testing::ElementsAre("no disturbance, no drift, no outlier"));
}

TEST(Soak, LastsToTheEndOfItsLastInterval) {
  auto points = soak(even);
  EXPECT_DOUBLE_EQ(soak_findings(points).seconds, interval_s * soak_intervals);
  const double last_begin = interval_s * (soak_intervals - 1);
  for (auto& p : points) {
    if (p.factors[Factor::interval] == core::Value{std::int64_t{soak_intervals - 1}})
      p.metrics[Metric::elapsed_s] = last_begin + 0.25;
  }
  EXPECT_NEAR(soak_findings(points).seconds, last_begin + 0.5, 1e-9) << "the last interval is shorter";
  std::erase_if(points, [](const auto& p) { return p.factors[Factor::interval] == core::Value{std::int64_t{7}}; });
  EXPECT_NEAR(soak_findings(points).seconds, last_begin + 0.5, interval_s) << "an interval is not in the file";
}

TEST(Soak, ADisturbanceInTheMiddleIsShownWithTimeAndHost) {
  const auto found =
      soak_findings(soak([](int rank, int i) { return rank == 3 && i >= 60 && i < 65 && i != 62 ? 1.8 : 1.0; }));
  ASSERT_EQ(found.disturbances.size(), 1U) << testing::PrintToString(soak_sentences(found));
  const auto& d = found.disturbances[0];
  EXPECT_EQ(d.host, "host4");
  EXPECT_DOUBLE_EQ(d.from_s, interval_s * 60.5);
  EXPECT_DOUBLE_EQ(d.to_s, interval_s * 64.5);
  EXPECT_NEAR(d.ratio, 1.8, 0.1);
  EXPECT_TRUE(found.drifts.empty());
}

TEST(Soak, WhatMostRanksSufferIsNobodysFault) {
  const auto found = soak_findings(soak([](int rank, int i) { return rank != 1 && i == 30 ? 2.0 : 1.0; }));
  ASSERT_EQ(found.disturbances.size(), 1U);
  EXPECT_EQ(found.disturbances[0].rank, -1);
  EXPECT_THAT(soak_sentences(found).at(0),
              testing::MatchesRegex("disturbed at 61.0 s: most ranks at once, 2.0. times their usual window .*"));
}

TEST(Soak, TwoDisturbancesOfAHostApartInTimeAreTwo) {
  const auto found = soak_findings(soak([](int rank, int i) { return rank == 0 && (i == 20 || i == 90) ? 2.0 : 1.0; }));
  EXPECT_EQ(found.disturbances.size(), 2U);
}

TEST(Soak, ADriftOfAllIsSaidOnceAndOfOneHostByItself) {
  const auto all = soak_findings(soak([](int, int i) { return 1 + 0.1 * i / soak_intervals; }));
  ASSERT_EQ(all.drifts.size(), 1U) << testing::PrintToString(soak_sentences(all));
  EXPECT_EQ(all.drifts[0].rank, -1);
  EXPECT_NEAR(all.drifts[0].share, 0.095, 0.01);
  const auto one = soak_findings(soak([](int rank, int i) { return rank == 6 ? 1 + 0.1 * i / soak_intervals : 1.0; }));
  ASSERT_EQ(one.drifts.size(), 1U) << testing::PrintToString(soak_sentences(one));
  EXPECT_EQ(one.drifts[0].host, "host7");
}

TEST(Soak, ASingleLongWindowIsAnOutlier) {
  const auto found = soak_findings(soak(even, [](int rank, int i) { return rank == 2 && i == 40 ? 50.0 : 1.2; }));
  ASSERT_EQ(found.outliers.size(), 1U);
  EXPECT_EQ(found.outliers[0].host, "host3");
  EXPECT_NEAR(found.outliers[0].ratio, 50, 1);
  EXPECT_TRUE(found.disturbances.empty()) << "its interval's median is the usual one";
}

TEST(Soak, ItsDisturbanceIsAFindingOfTheFile) {
  const auto found = [](const Slowness& slowness) {
    const core::Run run{.info = {}, .points = soak(slowness)};
    return findings({&run, 1});
  };
  const auto disturbed = found([](int rank, int i) { return rank == 3 && i >= 60 && i < 65 ? 2.0 : 1.0; });
  ASSERT_EQ(disturbed.front().kind, FindingKind::disturbance);
  EXPECT_EQ(disturbed.front().figures.at("disturbances").value, 1);
  EXPECT_THAT(disturbed.front().sentence, testing::HasSubstr("host4"));
  EXPECT_EQ(found(even).front().kind, FindingKind::nothing_wrong);
}

// The intervals of several soaks were merged by their numbers, and what disturbed one of them was gone.
TEST(Soak, ItsDisturbanceIsFoundAmongQuietSoaks) {
  std::vector<core::Run> runs;
  for (int launch = 0; launch < 3; ++launch) {
    runs.push_back({.info = {}, .points = soak([launch](int rank, int i) {
                                  return launch == 1 && rank == 3 && i >= 60 && i < 65 ? 2.0 : 1.0;
                                })});
    runs.back().info.run_id = fmt::format("r{}", launch);
  }
  const auto all = findings(runs);
  ASSERT_EQ(all.front().kind, FindingKind::disturbance);
  EXPECT_THAT(all.front().sentence, testing::AllOf(testing::HasSubstr("host4"), testing::HasSubstr("launch 2 of 3")));
  ASSERT_EQ(all.front().rows.size(), std::size_t{soak_ranks * soak_intervals});
  EXPECT_EQ(all.front().rows.front().run, 1u);
  EXPECT_EQ(std::ranges::count(all, FindingKind::disturbance, &Finding::kind), 1);
}

}  // namespace
}  // namespace gradmeter::analysis
