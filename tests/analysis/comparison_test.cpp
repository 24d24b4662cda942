// SPDX-License-Identifier: Apache-2.0
#include "analysis/comparison.hpp"

#include <algorithm>
#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.hpp"
#include "timed_launches.hpp"

namespace gradmeter::analysis {
namespace {

using ::testing::HasSubstr;

const std::vector<std::vector<double>> three_points{{1.00, 2.00, 3.0}, {1.01, 2.02, 4.0}, {0.99, 1.98, 3.5}};
const std::vector<std::vector<double>> changed{{1.30, 2.01, 3.6}, {1.31, 1.99, 3.2}, {1.29, 2.00, 4.4}};

Comparison compared(const std::vector<std::vector<double>>& a, const std::vector<std::vector<double>>& b) {
  return compare(timed_side("a", a), timed_side("b", b), {}, 0.05);
}
const ComparedPoint& of_size(const Comparison& c, std::int64_t size) {
  for (const auto& p : c.points)
    if (p.last_point.factors[core::Factor::size_bytes].get<std::int64_t>() == size) return p;
  throw std::logic_error("no such point");
}

TEST(Comparison, SaysSlowerSameAndUndecided) {
  const auto c = compared(three_points, changed);
  EXPECT_EQ(of_size(c, 1).verdict, Verdict::slower);
  EXPECT_LT(of_size(c, 1).ratio.value, 0.8);  // of rates
  EXPECT_EQ(of_size(c, 2).verdict, Verdict::same);
  EXPECT_EQ(of_size(c, 3).verdict, Verdict::undecided);
  EXPECT_GT(of_size(c, 3).launches_needed, 3);
  EXPECT_EQ(of_size(compared(changed, three_points), 1).verdict, Verdict::faster);
}

TEST(Comparison, PutsWhatMattersFirst) {
  const auto c = compared(three_points, changed);
  EXPECT_EQ(c.points.front().verdict, Verdict::slower);
  EXPECT_EQ(c.points.back().verdict, Verdict::same);
}

TEST(Comparison, OneLaunchIsUndecided) {
  const auto c = compared({{1.0}}, {{2.0}});
  EXPECT_EQ(c.points.front().verdict, Verdict::undecided);
  EXPECT_THAT(c.points.front().reason, HasSubstr("one launch"));
}

TEST(Comparison, PredictedPointsAreRefused) {
  Side predicted = timed_side("b", changed);
  predicted.runs.back().points.back().metrics[core::Metric::predicted] = true;
  for (const auto& [a, b] :
       {std::pair{timed_side("a", three_points), predicted}, {predicted, timed_side("a", changed)}}) {
    try {
      (void)compare(a, b, {}, 0.05);
      ADD_FAILURE() << "compared";
    } catch (const core::UsageError& e) {
      EXPECT_THAT(e.what(), HasSubstr("b has predicted points"));
    }
  }
}

TEST(Comparison, LaunchesInTwoEnvironmentsAreNoReplicates) {
  Side mixed = timed_side("b", changed);
  mixed.runs.front().info.environment["OMPI_MCA_btl"] = "tcp,self";
  const auto c = compare(timed_side("a", three_points), mixed, {}, 0.05);
  EXPECT_EQ(of_size(c, 1).verdict, Verdict::undecided);
  EXPECT_THAT(of_size(c, 1).reason, HasSubstr("of 2 machines, builds or conditions"));
}

TEST(Comparison, LaunchesOfTwoBuildsAreNoReplicates) {
  Side mixed = timed_side("b", changed);
  mixed.runs.front().info.commit = "another";
  const auto c = compare(timed_side("a", three_points), mixed, {}, 0.05);
  EXPECT_EQ(of_size(c, 1).verdict, Verdict::undecided);
  EXPECT_THAT(of_size(c, 1).reason, HasSubstr("of 2 machines, builds or conditions"));
  EXPECT_TRUE(std::isnan(of_size(c, 1).ratio.low)) << "an interval over these launches means nothing";
  EXPECT_THAT(why_below(of_size(c, 1), 0.5).value_or("passes"), HasSubstr("undecided, the launches of a side"));
  for (auto& run : mixed.runs) run.info.commit = "another";  // the sides' may differ
  EXPECT_EQ(of_size(compare(timed_side("a", three_points), mixed, {}, 0.05), 1).verdict, Verdict::slower);
}

TEST(Comparison, NamesPointsThatASideLacks) {
  const auto c = compared({{1.0, 2.0}, {1.0, 2.0}}, {{1.0}, {1.0}});
  EXPECT_EQ(of_size(c, 2).verdict, Verdict::missing);
  EXPECT_EQ(of_size(c, 2).reason, "second side: no such point");
}

TEST(Comparison, LeavesOutWhatWasNotMeasuredAndSaysWhy) {
  Side a = timed_side("a", three_points), b = timed_side("b", changed);
  for (auto& run : b.runs) {
    run.points[0].status = core::Status::mistrusted;
    run.points[0].reason = "faster than the link";
  }
  b.runs[0].points[1].status = core::Status::failed;
  const auto c = compare(a, b, {}, 0.05);
  EXPECT_EQ(of_size(c, 1).reason, "second side: mistrusted: faster than the link");
  EXPECT_EQ(of_size(c, 2).b.size(), 2u);
}

/// Sides whose launches have these values of `exposed_s`.
Comparison of_exposed(const std::vector<double>& a, const std::vector<double>& b) {
  const auto side = [](const std::string& name, const std::vector<double>& exposed) {
    Side out = timed_side(name, std::vector<std::vector<double>>(exposed.size(), {1.0}));
    for (std::size_t i = 0; i < exposed.size(); ++i)
      out.runs[i].points[0].metrics[core::Metric::exposed_s] = exposed[i];
    return out;
  };
  return compare(side("a", a), side("b", b), {.metric = core::Metric::exposed_s, .only = {}, .ignored = {}}, 0.05);
}

// The launches below zero were dropped, and the others decided alone.
TEST(Comparison, IsUndecidedWhereALaunchIsNotPositive) {
  const auto first = of_exposed({1e-4, 1.1e-4, -1e-4, -2e-4, -3e-4}, {5e-5, 5.01e-5, 5.02e-5});
  EXPECT_EQ(first.points.front().verdict, Verdict::undecided);
  EXPECT_THAT(first.points.front().reason, HasSubstr("3 of 5 launches of the first side are not positive"));
  EXPECT_TRUE(std::isnan(first.points.front().ratio.value));
  const auto second = of_exposed({1e-4, 1.1e-4, 1.05e-4}, {5e-5, 5.01e-5, 0});
  EXPECT_THAT(second.points.front().reason, HasSubstr("1 of 3 launches of the second side are not positive"));
  EXPECT_TRUE(why_below(second.points.front(), 0.5));
}

// Two launches that agree in all their digits came from a log that rounds: "slower, q 0".
TEST(Comparison, WithoutAnySpreadIsUndecidedUnlessEqual) {
  const auto c = compared({{1.01, 2.0}, {1.01, 2.0}}, {{1.02, 2.0}, {1.02, 2.0}});
  EXPECT_EQ(of_size(c, 1).verdict, Verdict::undecided);
  EXPECT_THAT(of_size(c, 1).reason, HasSubstr("spread between launches is not known"));
  EXPECT_TRUE(why_below(of_size(c, 1), 0.5));
  EXPECT_EQ(of_size(c, 2).verdict, Verdict::same);
}

TEST(Comparison, OfARateHasTheOtherDirection) {
  Side a = timed_side("a", three_points), b = timed_side("b", changed);
  for (Side* s : {&a, &b})
    for (auto& run : s->runs)
      for (auto& p : run.points) p.metrics[core::Metric::busbw_bytes_per_s] = p.metrics[core::Metric::time_s];
  const auto c = compare(a, b, {.metric = core::Metric::busbw_bytes_per_s, .only = {}, .ignored = {}}, 0.05);
  EXPECT_EQ(of_size(c, 1).verdict, Verdict::faster);
}

TEST(Comparison, WithoutACommonPointNamesTheFactorsThatDiffer) {
  Side a = timed_side("a", {{1.0}}), b = timed_side("b", {{1.0}});
  b.runs[0].points[0].factors[core::Factor::interconnect] = std::string("tcp");
  try {
    compare(a, b, {}, 0.05);
    FAIL();
  } catch (const core::UsageError& e) {
    EXPECT_THAT(e.what(), HasSubstr("they differ in interconnect (null and tcp)"));
  }
  const auto c =
      compare(a, b, {.metric = core::Metric::time_s, .only = {}, .ignored = {core::Factor::interconnect}}, 0.05);
  EXPECT_EQ(c.count(Verdict::undecided), 1u);
}

TEST(Bar, FailsClosed) {
  const auto c = compared(three_points, changed);
  EXPECT_FALSE(why_below(of_size(c, 2), 0.95));
  EXPECT_THAT(why_below(of_size(c, 1), 0.95).value(), HasSubstr("below"));
  EXPECT_THAT(why_below(of_size(c, 3), 0.95).value(), HasSubstr("undecided"));
  const auto below = [](const Comparison& all, double bar) {
    return std::ranges::count_if(all.points, [bar](const auto& p) { return why_below(p, bar).has_value(); });
  };
  EXPECT_EQ(below(c, 0.95), 2);
  EXPECT_EQ(below(compared({{1.0, 2.0}, {1.0, 2.0}}, {{1.0}, {1.0}}), 0.5), 1);  // the missing one
  EXPECT_EQ(below(compared({{1.0}}, {{0.5}}), 0.5), 1);                          // one launch decides nothing
}

TEST(Sides, ByAFactorBeginWithTheBaseline) {
  Side all = timed_side("a", three_points);
  for (auto& run : all.runs)
    for (std::size_t i = 0; i < 3; ++i)
      run.points[i].factors[core::Factor::precision] = std::string(i == 0 ? "fp32" : i == 1 ? "bf16" : "fp16");
  const auto sides = sides_by(core::Factor::precision, all.runs, "bf16");
  ASSERT_EQ(sides.size(), 3u);
  EXPECT_EQ(sides[0].name, "bf16");
  EXPECT_EQ(sides[1].name, "fp32");
  EXPECT_EQ(sides[0].runs.size(), 3u);
  EXPECT_THROW(sides_by(core::Factor::precision, all.runs, "int8"), core::UsageError);
  EXPECT_THROW(sides_by(core::Factor::codec, all.runs, ""), core::UsageError);
}

TEST(Launches, TakeTheLastPointOfAKey) {
  Side a = timed_side("a", {{1.0}, {1.0}});
  for (auto& run : a.runs) run.points.push_back(timed_point(1, 5.0));
  const LaunchedPoints points(a.runs, {});
  ASSERT_EQ(points.keys().size(), 1u);
  EXPECT_EQ(points.find(points.keys()[0])->values, (std::vector{5.0, 5.0}));
}

// All but the last point were dropped, and their differences with them.
TEST(Launches, WhosePointsDifferInAnIgnoredFactorAreRefused) {
  Side a = timed_side("a", {{1.0}, {1.0}});
  for (auto& run : a.runs) {
    run.points.push_back(timed_point(1, 5.0));
    run.points[0].factors[core::Factor::transport] = std::string("shm");
    run.points[1].factors[core::Factor::transport] = std::string("mpi");
  }
  PointSelection ignoring{.metric = core::Metric::time_s, .only = {}, .ignored = {core::Factor::transport}};
  try {
    const LaunchedPoints points(a.runs, ignoring);
    ADD_FAILURE() << "one of two points was dropped";
  } catch (const core::UsageError& e) {
    EXPECT_THAT(e.what(), ::testing::AllOf(HasSubstr("transport (mpi and shm)"), HasSubstr("--where transport=mpi")));
  }
  ignoring.only = {{core::Factor::transport, "mpi"}};
  const LaunchedPoints points(a.runs, ignoring);
  EXPECT_EQ(points.find(points.keys().at(0))->values, (std::vector{5.0, 5.0}));
}

TEST(Metrics, WithoutADirectionAreRefused) {
  EXPECT_THROW(better_direction(core::Metric::overlap_s), core::UsageError);  // more may also mean more to hide
  EXPECT_THROW(better_direction(core::Metric::elapsed_s), core::UsageError);
  EXPECT_EQ(better_direction(core::Metric::time_s), -1);
  EXPECT_EQ(better_direction(core::Metric::efficiency), 1);
  EXPECT_THROW(better_direction(core::Metric::blocks), core::UsageError);
  EXPECT_THROW(find_metric("time"), core::UsageError);
}

}  // namespace
TEST(WithRanksOf, StartsACommandAsTheRunWasStarted) {
  core::RunInfo run;
  run.command = "gradmeter scale --ranks 2";
  run.ranks = 2;
  EXPECT_EQ(with_ranks_of(run, "gradmeter scale --batch 256"), "mpirun -np 2 gradmeter scale --batch 256");
  EXPECT_EQ(with_ranks_of(run, "gradmeter links --pattern groups"), "mpirun -np 2 gradmeter links --pattern groups");
  EXPECT_EQ(with_ranks_of(run, "gradmeter compare a.jsonl"), "gradmeter compare a.jsonl");
  EXPECT_EQ(with_ranks_of(run, "scripts/launches.sh 5 -- gradmeter scale"), "scripts/launches.sh 5 -- gradmeter scale");
  run.command += " --thread-ranks 2";
  EXPECT_EQ(with_ranks_of(run, "gradmeter scale --batch 256"), "gradmeter scale --batch 256 --thread-ranks 2");
  EXPECT_EQ(with_ranks_of(run, run.command), run.command);
  run.ranks = 1;
  EXPECT_EQ(with_ranks_of(run, "gradmeter scale --batch 256"), "gradmeter scale --batch 256");
}

}  // namespace gradmeter::analysis
