// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>

#include "analysis/comparison.hpp"
#include "core/format.hpp"
#include "report/comparison_table.hpp"

namespace gradmeter::report {
namespace {

using analysis::Comparison;
using core::Factor;
using core::Metric;
using testing::HasSubstr;
using testing::Not;

/// A launch for each time, which measured two sizes; the larger one takes as long on both sides.
analysis::Side side(const std::string& name, const std::vector<double>& times) {
  analysis::Side out{.name = name, .runs = {}};
  for (std::size_t i = 0; i < times.size(); ++i) {
    core::Run run;
    run.info.run_id = fmt::format("{}-{}", name, i);
    for (const auto& [size, seconds] : {std::pair{1024, times[i]}, {65536, 0.020 + 0.0001 * static_cast<double>(i)}}) {
      core::Point p;
      p.experiment = "allreduce";
      p.factors[Factor::algorithm] = std::string("ring");
      p.factors[Factor::size_bytes] = std::int64_t{size};
      p.metrics[Metric::time_s] = seconds;
      run.points.push_back(p);
    }
    out.runs.push_back(run);
  }
  return out;
}

// The medians are 15.9 and 14.8 ms, and their quotient is 1.07; one launch each moves the geometric means.
Comparison skewed() {
  return analysis::compare(side("before", {0.0157, 0.0158, 0.0159, 0.0200, 0.0210}),
                           side("after", {0.0100, 0.0102, 0.0148, 0.0149, 0.0150}), {}, 0.05);
}

TEST(ComparisonTable, TheRatioIsTheQuotientOfTheFiguresBesideIt) {
  const Comparison c = skewed();
  const auto& p = *std::find_if(c.points.begin(), c.points.end(), [](const auto& q) {
    return core::to_text(q.last_point.factors[Factor::size_bytes]) == "1024";
  });
  const double first = std::pow(0.0157 * 0.0158 * 0.0159 * 0.0200 * 0.0210, 0.2),
               second = std::pow(0.0100 * 0.0102 * 0.0148 * 0.0149 * 0.0150, 0.2);
  ASSERT_NEAR(p.ratio.value, first / second, 1e-12);
  const std::string row =
      fmt::format("{:<10}  {:>14.1f}  {:>14.1f}  {:>5.2f}", 1024, 1e3 * first, 1e3 * second, first / second);
  const std::string table = comparison_table(c, 9);
  EXPECT_THAT(table, HasSubstr(row)) << table;
  EXPECT_THAT(table, HasSubstr("geom. mean, ms"));
  EXPECT_THAT(comparison_legend(0.05, Legend::whole),
              HasSubstr("geometric means of each side's launches, whose quotient is the ratio"));
}

TEST(ComparisonTable, CsvAndJunitNameTheSameFigures) {
  const Comparison c = skewed();
  EXPECT_THAT(comparison_csv(c), HasSubstr("first_geometric_mean_time_s,second_geometric_mean_time_s,ratio"));
  const std::string xml = comparison_junit({&c, 1}, 0.95);
  for (const auto& p : c.points) {
    const double of_a = analysis::geometric_mean(p.a), of_b = analysis::geometric_mean(p.b);
    EXPECT_THAT(xml, HasSubstr(fmt::format("name=\"first_geometric_mean_time_s\" value=\"{}\"", of_a)));
    EXPECT_THAT(xml, HasSubstr(fmt::format("name=\"second_geometric_mean_time_s\" value=\"{}\"", of_b)));
    EXPECT_NEAR(of_a / of_b, p.ratio.value, 1e-12);
    EXPECT_THAT(comparison_csv(c), HasSubstr(fmt::format("{},{},{}", core::to_text(of_a), core::to_text(of_b),
                                                         core::to_text(p.ratio.value))));
  }
}

TEST(ComparisonVerdict, SaysWhatIsSlowerWhereAndByHowMuch) {
  const auto a = side("before", {0.0100, 0.0101, 0.0099, 0.0100, 0.0102}),
             b = side("after", {0.0200, 0.0201, 0.0199, 0.0202, 0.0200});
  const analysis::Finding found = comparison_verdict(analysis::compare(a, b, {}, 0.05));
  const std::string& text = found.sentence;
  EXPECT_THAT(text, HasSubstr("after against before is slower at 1 of 2 points, most at allreduce size_bytes=1024: "
                              "20.0 instead of 10.0 ms, × 0.50 (0."));
  EXPECT_THAT(text, Not(HasSubstr("faster")));
  EXPECT_EQ(found.kind, analysis::FindingKind::compared);
  EXPECT_EQ(found.experiment, "allreduce");
  EXPECT_EQ(found.figures.at("slower").value, 1);
  EXPECT_EQ(found.figures.at("same").value, 1);
  const auto& most = found.figures.at("most_slower");
  EXPECT_NEAR(most.value, 0.5, 0.01);
  EXPECT_LT(most.low, most.value);
  EXPECT_GT(most.high, most.value);
  EXPECT_FALSE(found.figures.contains("most_faster"));
}

// "0.00 instead of 0.00", and µs shown in the unit of the ms beside them.
TEST(ComparisonVerdict, HasFiguresThatTellItsPointApart) {
  const auto tiny = [](const std::string& name, double seconds, double error) {
    analysis::Side out = side(name, {seconds, 1.01 * seconds, 0.99 * seconds});
    for (auto& run : out.runs)
      for (auto& p : run.points) p.metrics[Metric::error] = error * p.metrics.number(Metric::time_s);
    return out;
  };
  const auto a = tiny("a", 1e-6, 1), b = tiny("b", 2e-6, 1);
  const Comparison times = analysis::compare(a, b, {}, 0.05);
  EXPECT_THAT(comparison_verdict(times).sentence, HasSubstr("2.00 instead of 1.00 µs, × 0.50 ("));
  EXPECT_THAT(comparison_verdict(times).sentence, HasSubstr(") of the rate"));
  EXPECT_THAT(comparison_table(times, 9), HasSubstr("0.00100  ")) << comparison_table(times, 9);
  const Comparison errors = analysis::compare(a, b, {.metric = Metric::error, .only = {}, .ignored = {}}, 0.05);
  EXPECT_THAT(comparison_verdict(errors).sentence, HasSubstr("2.00e-06 instead of 1.00e-06, × 0.50 ("));
  EXPECT_THAT(comparison_verdict(errors).sentence, Not(HasSubstr("of the rate")));
}

TEST(ComparisonTable, MarksAPointThatAnyLaunchOfEitherSideSpoils) {
  const std::vector<double> times{0.0100, 0.0101, 0.0099};
  analysis::Side a = side("a", times), b = side("b", times);
  a.runs[0].points[0].metrics[Metric::oversubscribed] = true;
  b.runs[0].points[1].metrics[Metric::noise_run_delay] = 0.6;
  const std::string table = comparison_table(analysis::compare(a, b, {}, 0.05), 9);
  EXPECT_THAT(table, HasSubstr("same*")) << table;
  EXPECT_THAT(table, HasSubstr("same~")) << table;
}

TEST(ComparisonTable, SaysWhichLaunchesOfTheFirstSideAreLeftOut) {
  const std::vector<double> times{0.0100, 0.0101, 0.0099};
  analysis::Side a = side("a", times);
  a.runs[0].points[0].status = core::Status::failed;
  a.runs[0].points[0].reason = "killed";
  const Comparison c = analysis::compare(a, side("b", times), {}, 0.05);
  EXPECT_THAT(comparison_csv(c), HasSubstr("first side: 1 of 3 launches failed: killed"));
  EXPECT_EQ(std::ranges::count_if(c.points, [](const auto& p) { return analysis::why_below(p, 0.9).has_value(); }), 0)
      << "a first side is held against by its other launches";
}

TEST(ComparisonVerdict, SaysThatNoDifferenceIsShown) {
  const std::string same = comparison_verdict(analysis::compare(side("a", {0.0100, 0.0101, 0.0099}),
                                                                side("b", {0.0100, 0.0101, 0.0099}), {}, 0.05))
                               .sentence;
  EXPECT_EQ(same, "No difference is shown between a and b: 2 of 2 points the same.");
  const std::string open =
      comparison_verdict(analysis::compare(side("a", {0.01}), side("b", {0.02}), {}, 0.05)).sentence;
  EXPECT_EQ(open, "No difference is shown between a and b: 0 of 2 points the same, but 2 undecided and 0 missing.");
}

}  // namespace
}  // namespace gradmeter::report
