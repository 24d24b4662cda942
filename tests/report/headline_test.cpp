// SPDX-License-Identifier: Apache-2.0
#include "report/page/page.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <sstream>

#include "report/page/charts.hpp"

namespace gradmeter::report {
namespace {

using core::Factor;
using core::Metric;
using testing::HasSubstr;
using testing::Not;

PageRow row(std::int64_t ranks, double samples_per_s, double efficiency) {
  PageRow out;
  out.point.experiment = "scale";
  out.point.factors[Factor::model] = "lenet5";
  out.point.factors[Factor::ranks] = ranks;
  core::Metrics& m = out.point.metrics;
  m[Metric::efficiency] = efficiency;
  m[Metric::samples_per_s] = samples_per_s;
  m[Metric::efficiency_ci95_low] = 0.41;
  m[Metric::efficiency_ci95_high] = 0.45;
  m[Metric::wire_s] = 0.9e-3;
  m[Metric::wait_s] = 0.1e-3;
  m[Metric::bound_by] = "wire";
  out.put("series", "ring");
  return out;
}

TEST(Headline, IsOfTheFastestPointAtTheMostRanksThatIsNotInDoubt) {
  PageTable table;
  table.rows = {row(2, 900, 0.9), row(4, 500, 0.43), row(4, 800, 2.5)};
  table.rows[2].put("doubt", "above 100 %");
  const Headline found = headline(table);
  ASSERT_EQ(found.figures.size(), 3U);
  EXPECT_EQ(found.figures[0].value, "43 %");
  EXPECT_EQ(found.figures[0].interval, "41–45");
  EXPECT_EQ(found.figures[1].value, "90 %");
  EXPECT_EQ(found.figures[1].what, "of the lost time: the wire");
  EXPECT_EQ(found.figures[2].value, "500");
  EXPECT_EQ(found.of, "lenet5, 4 ranks, ring; of 2 points at 4 ranks the one with most samples/s");
}

TEST(Headline, IsOfTheFirstPanelThatHasAFigureToRelyOn) {
  PageTable table;
  table.rows = {row(4, 700, 0.7), row(4, 500, 0.43), row(4, 900, 0.9)};
  for (std::size_t i = 0; i < 3; ++i)
    table.rows[i].put("panel", i == 0 ? "servers" : i == 1 ? "100 Gbit/s" : "400 Gbit/s");
  table.rows[0].put("doubt", "more threads than cores");
  EXPECT_EQ(headline(table).figures[0].value, "43 %");
}

TEST(Headline, MarksAFigureThatIsInDoubtAndNamesNoLossWhereLittleWasLost) {
  PageTable table;
  table.rows = {row(2, 900, 2.56)};
  table.rows[0].put("doubt", "above 100 %");
  table.rows[0].point.metrics[Metric::bound_by] = "compute";
  const Headline found = headline(table);
  ASSERT_EQ(found.figures.size(), 2U);
  EXPECT_EQ(found.figures[0].value, "256 % ?");
  EXPECT_EQ(found.figures[0].what, "efficiency on 2 ranks: above 100 %");
  EXPECT_EQ(found.figures[1].value, "900 ?");
}

TEST(Headline, IsEmptyWithoutFigures) {
  PageTable table;
  table.rows = {row(2, 900, 0.9)};
  table.rows[0].point.status = core::Status::unsupported;
  EXPECT_TRUE(headline(table).figures.empty());
}

PageRow row_of(const char* experiment, std::int64_t ranks, double seconds) {
  PageRow out;
  out.point.experiment = experiment;
  out.point.factors[Factor::ranks] = ranks;
  out.point.metrics[Metric::time_s] = seconds;
  out.put("series", "measured");
  return out;
}

PageRow call(std::int64_t ranks, std::int64_t size, double seconds) {
  PageRow out = row_of("allreduce", ranks, seconds);
  out.point.factors[Factor::size_bytes] = size;
  return out;
}

TEST(Headline, MarksFiguresInDoubtInEveryExperiment) {
  PageRow kernel = row_of("kernels", 1, 1e-3), link = row_of("links", 2, 1e-3), pass = row_of("infer", 1, 1e-3),
          epoch = row_of("train", 2, 1e-3);
  kernel.point.metrics[Metric::flops_per_s] = 1e9;
  link.point.factors[Factor::pattern] = std::string("one-way");
  link.point.factors[Factor::from_rank] = std::int64_t{0};
  link.point.factors[Factor::to_rank] = std::int64_t{1};
  link.point.metrics[Metric::link_bytes_per_s] = 1e9;
  pass.point.metrics[Metric::samples_per_s] = 100.0;
  epoch.point.metrics[Metric::accuracy] = 0.5;
  for (PageRow row : {call(2, 8, 1e-3), kernel, link, pass, epoch}) {
    PageTable table;
    table.rows = {row};
    for (const auto& figure : headline(table).figures) EXPECT_THAT(figure.value, Not(HasSubstr("?")));
    table.rows[0].put("doubt", "disturbed");
    const Headline found = headline(table);
    ASSERT_FALSE(found.figures.empty()) << row.point.experiment;
    for (const auto& figure : found.figures) EXPECT_TRUE(figure.value.ends_with(" ?")) << figure.value;
    EXPECT_TRUE(found.figures[0].what.ends_with(": disturbed")) << found.figures[0].what;
  }
}

TEST(Headline, OfCallsIsOfTheMostRanks) {
  PageTable table;
  table.rows = {call(2, 1048576, 1e-3), call(8, 1048576, 4e-3), call(8, 1024, 1e-5), call(2, 4194304, 2e-3)};
  const Headline found = headline(table);
  EXPECT_EQ(found.figures.at(0).value, "4.00 ms");
  EXPECT_EQ(found.of, "8 ranks, 1 MiB");
}

TEST(Headline, OfLinksIsOfOneLinkInOneDirection) {
  PageTable table;
  const auto add = [&](const char* pattern, std::int64_t size, double bytes_per_s) -> PageRow& {
    table.rows.push_back(row_of("links", 4, 1e-3));
    core::Factors& factors = table.rows.back().point.factors;
    factors[Factor::pattern] = std::string(pattern);
    factors[Factor::size_bytes] = size;
    factors[Factor::from_rank] = std::int64_t{2};
    factors[Factor::to_rank] = std::int64_t{3};
    table.rows.back().point.metrics[Metric::link_bytes_per_s] = bytes_per_s;
    return table.rows.back();
  };
  add("one-way", 1048576, 5e9);
  add("one-way", 1048576, 4e9);
  add("both-ways", 1048576, 3e9);
  add("one-way", 8, 1e6);
  add("bisection", 1048576, 2e9).point.factors[Factor::from_rank] = {};
  add("one-way", 1048576, 1e9).point.factors[Factor::to_rank] = {};
  const Headline found = headline(table);
  EXPECT_EQ(found.figures.at(0).value, "4.00 GB/s");
  EXPECT_THAT(found.of, HasSubstr("rank 2 to rank 3"));
}

TEST(Headline, OfInferenceIsTheRateOfAllRanksOfOneModel) {
  PageTable table;
  table.rows = {row_of("infer", 4, 1e-3), row_of("infer", 1, 1e-3), row_of("infer", 1, 1e-6)};
  for (PageRow& row : table.rows) row.point.factors[Factor::batch_per_rank] = std::int64_t{8};
  for (std::size_t i = 0; i < 3; ++i)
    table.rows[i].point.factors[Factor::model] = std::string(i < 2 ? "lenet5" : "mlp:4-2");
  table.rows[0].point.metrics[Metric::samples_per_s] = 31000.0;
  Headline found = headline(table);
  ASSERT_EQ(found.figures.size(), 2u);
  EXPECT_EQ(found.figures[1].value, "31.0k");
  EXPECT_EQ(found.of, "lenet5, 4 ranks; of 2 points the one with most samples/s");
  table.rows[0].point.metrics[Metric::samples_per_s] = {};
  EXPECT_EQ(headline(table).figures.at(1).value, "32.0k");
}

// Steps count from the run's begin, and the second epoch's steps took a tenth of the first one's.
TEST(Headline, OfTrainingHasTheTimeOfAllEpochs) {
  PageTable table;
  table.rows = {row_of("train", 2, 1e-2), row_of("train", 2, 1e-3)};
  for (std::size_t i = 0; i < 2; ++i) {
    core::Point& point = table.rows[i].point;
    point.factors[Factor::batch_global] = std::int64_t{32};
    point.metrics[Metric::accuracy] = i == 0 ? 0.5 : 0.75;
    point.metrics[Metric::step] = static_cast<std::int64_t>(100 * (i + 1));
    point.metrics[Metric::samples_per_s] = 32.0 * 100 * static_cast<double>(i + 1) / (i == 0 ? 1.0 : 1.1);
  }
  const Headline found = headline(table);
  ASSERT_EQ(found.figures.size(), 3u);
  EXPECT_EQ(found.figures[0].value, "75.0 %");
  EXPECT_EQ(found.figures[1].value, "1.10 s");
}

// `step` counts from the run's begin, and `time_s` is of one epoch's steps: their product may run backwards.
TEST(Charts, AccuracyOverTimeIsByTheSamplesInASecondOfAllEpochs) {
  PageTable table;
  for (std::int64_t i = 1; i <= 2; ++i) {
    table.rows.push_back(row_of("train", 2, 1e-3));
    table.rows.back().point.metrics[Metric::accuracy] = 0.5;
    table.rows.back().point.metrics[Metric::step] = 100 * i;
  }
  const auto over_time = [&] {
    const auto charts = charts_for(table);
    const auto found = std::ranges::find(charts, "accuracy_time", &Chart::name);
    return found == charts.end() ? "" : core::json_text(found->spec);
  };
  EXPECT_EQ(over_time(), "");
  for (PageRow& row : table.rows) row.point.metrics[Metric::samples_per_s] = 100.0;
  EXPECT_THAT(over_time(), HasSubstr("/ datum.samples_per_s"));
  EXPECT_THAT(over_time(), Not(HasSubstr("datum.time_s")));
}

TEST(Page, PrintsNoRanksNodesAndHostsThatAreUnknown) {
  core::Run run;
  run.info.version = "nccl-tests 2.17.1";
  run.info.ranks = 8;
  run.info.nodes = 0;
  const auto page = [&] {
    const std::array sides{analysis::Side{.name = "a", .runs = {run}}};
    std::ostringstream out;
    write_html_page({}, {}, sides, out);
    return out.str();
  };
  EXPECT_THAT(page(), HasSubstr("<dt>ranks</dt><dd>8</dd>"));
  EXPECT_THAT(page(), HasSubstr("<dd>nccl-tests 2.17.1</dd>"));
  EXPECT_THAT(page(), HasSubstr("0 points of 1 run<"));
  run.info.ranks = 0;
  EXPECT_THAT(page(), Not(HasSubstr("<dt>ranks</dt>")));
  run.info.ranks = 8;
  run.info.nodes = 2;
  run.info.mapping = "block";
  run.info.hosts = {"n1", "n2"};
  EXPECT_THAT(page(), HasSubstr("<dt>ranks</dt><dd>8 on 2 nodes, block</dd>"));
  EXPECT_THAT(page(), HasSubstr("0 points of 1 run on 2 hosts"));
}

TEST(Charts, OfTimesAndRatesSayWhyAPointIsInDoubt) {
  for (const std::string name : {"accuracy_time", "bandwidth", "crossover", "efficiency", "latency", "link_bandwidth",
                                 "link_latency", "roofline", "speedup", "throughput"}) {
    const auto found = std::ranges::find_if(chart_files(), [&](const auto& file) { return file.name == name; });
    ASSERT_NE(found, chart_files().end()) << name;
    EXPECT_THAT(std::string(found->text), HasSubstr("{\"field\": \"doubt\"}")) << name;
  }
}

TEST(Markdown, SaysWhichRowsAreWrongMistrustedOrInDoubt) {
  PageTable table;
  table.rows = {call(2, 8, 0.125), call(2, 16, 0.25), call(2, 32, 0.5)};
  table.varying = {Factor::size_bytes};
  EXPECT_THAT(markdown(table, {}), HasSubstr("| buffer of a rank [B] | time [s] |\n"));
  table.rows[1].point.status = core::Status::wrong;
  table.rows[1].point.reason = "3 elements out of bounds";
  table.rows[2].point.status = core::Status::mistrusted;
  table.rows[2].put("doubt", "mistrusted: faster than can be");
  const std::string text = markdown(table, {});
  EXPECT_THAT(text, HasSubstr("| buffer of a rank [B] | time [s] | status | doubt |\n"));
  EXPECT_THAT(text, HasSubstr("| 8 | 0.125 | ok |  |\n"));
  EXPECT_THAT(text, HasSubstr("| 16 |  | wrong: 3 elements out of bounds |  |\n"));
  EXPECT_THAT(text, HasSubstr("| 32 | 0.5 | mistrusted | mistrusted: faster than can be |\n"));
}

TEST(Markdown, TellsRowsWithAFactorFromRowsWithout) {
  PageTable table;
  table.rows = {call(2, 8, 0.125), call(2, 8, 0.25)};
  table.rows[1].point.factors[Factor::problem] = std::string("time=cpu");
  table.varying = {Factor::problem};
  const std::string text = markdown(table, {});
  EXPECT_THAT(text, HasSubstr("|  | 0.125 |\n"));
  EXPECT_THAT(text, HasSubstr("| time=cpu | 0.25 |\n"));
}

TEST(Markdown, TellsSidesMachinesAndBuildsApart) {
  PageTable table;
  table.rows = {call(2, 8, 0.125), call(2, 8, 0.25)};
  table.rows[0].put("side", "before");
  table.rows[1].put("side", "after");
  table.rows[1].put("build", "commit bbbb");
  const std::string text = markdown(table, {});
  EXPECT_THAT(text, HasSubstr("| side | build | time [s] |\n"));
  EXPECT_THAT(text, HasSubstr("| before |  | 0.125 |\n"));
  EXPECT_THAT(text, HasSubstr("| after | commit bbbb | 0.25 |\n"));
}

}  // namespace
}  // namespace gradmeter::report
