// SPDX-License-Identifier: Apache-2.0
#include "bench/allreduce/allreduce.hpp"
#include "report/cells.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace gradmeter::bench {
namespace {

using core::Factor;
using core::Metric;
using core::Point;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

Point point(const char* algorithm, bool in_place, double seconds, std::int64_t size = 4096) {
  Point p;
  p.experiment = "allreduce";
  p.factors[Factor::collective] = std::string("allreduce");
  p.factors[Factor::algorithm] = std::string(algorithm);
  p.factors[Factor::transport] = std::string("shm");
  p.factors[Factor::size_bytes] = size;
  p.factors[Factor::dtype] = std::string("fp16");
  p.factors[Factor::op] = std::string("sum");
  p.factors[Factor::ranks] = std::int64_t{2};
  p.factors[Factor::nodes] = std::int64_t{1};
  p.factors[Factor::buffers] = std::string("arena");
  p.factors[Factor::in_place] = in_place;
  p.factors[Factor::cadence] = std::string("barrier");
  p.factors[Factor::reduction] = std::string("max");
  core::Summary time;
  time.median = seconds;
  time.ci95_low = seconds * 0.9;
  time.ci95_high = seconds * 1.1;
  time.p99 = seconds * 2;
  time.max = seconds * 3;
  p.metrics[Metric::time_s] = time;
  p.metrics[Metric::algbw_bytes_per_s] = 1.5e9;
  p.metrics[Metric::busbw_bytes_per_s] = 2.5e9;
  p.metrics[Metric::limit_s] = seconds / 2;
  p.metrics[Metric::wrong] = std::int64_t{0};
  p.metrics[Metric::error] = 1e-4;
  return p;
}

std::size_t lines(const std::string& text, std::string_view part) {
  std::size_t n = 0;
  for (auto at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++n;
  return n;
}

TEST(CollectiveTable, PointsThatDifferInAFactorWithoutAColumnHaveTablesOfTheirOwn) {
  auto one = point("ring", false, 12.3e-6), other = point("ring", false, 45.6e-6);
  one.factors[Factor::threads] = std::int64_t{1};
  other.factors[Factor::threads] = std::int64_t{2};
  EXPECT_THAT(collective_tables(std::vector{one, other}),
              AllOf(HasSubstr("max over ranks · threads=1\n"), HasSubstr("12.3"),
                    HasSubstr("max over ranks · threads=2\n"), HasSubstr("45.6")));
  EXPECT_THAT(collective_tables(std::vector{one}), HasSubstr("max over ranks\n"));
}

TEST(CollectiveTable, SaysAboveTheRowsHowSteadyTheMachineWas) {
  auto steady = point("ring", false, 1e-3), shaken = point("mpi", false, 1e-3);
  EXPECT_THAT(collective_tables(std::vector{steady}), Not(HasSubstr("machine:"))) << "not known";
  for (auto* p : {&steady, &shaken}) {
    p->metrics[Metric::blocks] = std::int64_t{8};
    p->metrics[Metric::disturbed_blocks] = std::int64_t{p == &shaken ? 5 : 0};
    p->metrics[Metric::left_out_blocks] = std::int64_t{0};
    p->metrics[Metric::steadiness] = p == &shaken ? 0.8 : 0.99;
  }
  EXPECT_THAT(collective_tables(std::vector{steady, shaken}),
              HasSubstr("machine: at least 80 % steady; 5 of 16 blocks used were disturbed, 0 others left out\n"
                        "disturbed: 1 of 2 points: 1 with most blocks disturbed\n"));
  EXPECT_THAT(collective_tables(std::vector{shaken}), HasSubstr("~")) << "more than half";
  EXPECT_THAT(collective_tables(std::vector{steady}), Not(HasSubstr("~")));
}

TEST(CollectiveTable, OneRowHoldsBothPlacesOfACall) {
  const auto text = collective_tables(std::vector{point("ring", false, 123e-6), point("ring", true, 45.6e-6)});
  EXPECT_EQ(lines(text, "ring/shm"), 1u);
  for (const char* part :
       {"out of place", "in place", "time, us", "#wrong", "123", "45.6", "111–135", "2.50", "1.50", "2048", "2.00",
        "allreduce · fp16 · sum · buffers arena · 2 ranks on 1 node · cadence barrier"}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
}

/// With a narrow interval, so that what differs by a tenth is shown to.
Point timed(const char* algorithm, bool in_place, double seconds) {
  Point p = point(algorithm, in_place, seconds);
  core::Summary time = p.metrics[Metric::time_s].get<core::Summary>();
  time.ci95_low = 0.99 * seconds;
  time.ci95_high = 1.01 * seconds;
  p.metrics[Metric::time_s] = time;
  if (std::string_view(algorithm) == "mpi") p.factors[Factor::transport] = {};
  return p;
}

// 5.79 ms of the one in place beside 8 ms of the other out of place would name a winner of neither.
TEST(CollectiveWinners, StandForEachPlaceApartWithTheVendorsTime) {
  const std::string text = collective_winners(std::vector{timed("ring", false, 800e-6), timed("ring", true, 579e-6),
                                                          timed("swing", false, 700e-6), timed("swing", true, 900e-6),
                                                          timed("mpi", false, 1400e-6), timed("mpi", true, 600e-6)});
  EXPECT_THAT(text, HasSubstr("4096  out    swing/shm   700  693–707  mpi     1400  2.00 (1.96–2.04)\n")) << text;
  EXPECT_THAT(text, HasSubstr("4096  in     ring/shm    579  573–585  mpi      600  1.04 (1.02–1.06)\n")) << text;
}

TEST(CollectiveWinners, SayWhereNoneIsShown) {
  EXPECT_EQ(collective_winners(std::vector{timed("ring", true, 1e-3), timed("ring", false, 1e-3)}), "") << "no choice";
  const std::string text = collective_winners(std::vector{timed("ring", true, 1000e-6), timed("swing", true, 1001e-6)});
  EXPECT_THAT(text, HasSubstr("ring/shm  1000  990–1010  -          -         -  not shown to be faster")) << text;
  const std::string vendors = collective_winners(std::vector{timed("ring", true, 2e-3), timed("mpi", true, 1e-3)});
  EXPECT_THAT(vendors, HasSubstr("in     mpi      1000  990–1010  -          -         -\n")) << "itself the fastest";
}

TEST(CollectiveTable, AHalfThatWasNotAskedForIsNotThere) {
  const auto text = collective_tables(std::vector{point("ring", true, 45.6e-6)});
  EXPECT_THAT(text, HasSubstr("in place"));
  EXPECT_THAT(text, Not(HasSubstr("out of place")));
}

TEST(CollectiveTable, RowsStandBySizeWhateverTheOrderTheyCameIn) {
  const auto text = collective_tables(std::vector{point("ring", true, 1e-3, 8192), point("swing", true, 1e-6, 64)});
  EXPECT_LT(text.find("swing"), text.find("ring/"));
}

Point unsupported(const char* algorithm, const char* reason, std::int64_t size = 4096) {
  Point p = point(algorithm, false, 1, size);
  p.status = core::Status::unsupported;
  p.metrics = {};
  p.reason = reason;
  return p;
}

TEST(CollectiveTable, WithinASizeTheFastestIsFirst) {
  const auto text =
      collective_tables(std::vector{point("ring", false, 3e-6), point("ring", true, 9e-6), point("direct", false, 5e-6),
                                    point("direct", true, 2e-6), point("binary", false, 4e-6, 8192)});
  EXPECT_LT(text.find("direct/"), text.find("ring/")) << text;
  EXPECT_LT(text.find("ring/"), text.find("binary/")) << text;
}

TEST(CollectiveTable, WhatAppliesAtNoSizeIsCountedBelowTheRows) {
  const auto text = collective_tables(
      std::vector{point("ring", false, 1e-6), unsupported("swing", "wants a power of two"),
                  unsupported("torus2d", "wants a power of two"), unsupported("neighbour", "has no all_reduce"),
                  unsupported("direct", "is too small"), point("direct", false, 1e-6, 8192)});
  EXPECT_THAT(text, HasSubstr("3 algorithms do not apply:\n"
                              "    neighbour/shm: has no all_reduce\n"
                              "    swing/shm, torus2d/shm: wants a power of two\n"));
  EXPECT_THAT(text, HasSubstr("unsupported: is too small")) << "at another size it applies";
  EXPECT_THAT(collective_tables(std::vector{unsupported("swing", "wants a power of two")}),
              HasSubstr("unsupported: wants"))
      << "where nothing else is, the row itself says why";
}

TEST(CollectiveTable, TheIntervalIsKeptIn80Columns) {
  const auto text = collective_tables(
      std::vector{point("rabenseifner", false, 1234e-6, 64 << 20), point("rabenseifner", true, 1234e-6, 64 << 20)}, 80);
  EXPECT_THAT(text, HasSubstr("1111–1357")) << text;
}

TEST(CollectiveTable, AWrongRowShowsHowManyAndTheReason) {
  Point p = point("ring", false, 1e-3);
  p.status = core::Status::wrong;
  p.reason = "3 elements are outside the tolerance, over all ranks";
  p.metrics[Metric::wrong] = std::int64_t{3};
  EXPECT_THAT(collective_tables(std::vector{p}), HasSubstr("wrong: 3 elements are outside the tolerance"));
}

TEST(CollectiveTable, CrowdingAndNoiseAreMarked) {
  Point p = point("ring", false, 50e-6);
  EXPECT_THAT(collective_tables(std::vector{p}), Not(HasSubstr("50.0*")));
  p.metrics[Metric::noise_run_delay] = 0.5;
  p.metrics[Metric::busy_host] = std::string("node7");
  p.factors[Factor::ranks_per_node] = std::int64_t{2};
  EXPECT_THAT(collective_tables(std::vector{p}), Not(HasSubstr("busy:"))) << "there is no other node";
  p.factors[Factor::ranks_per_node] = std::int64_t{1};
  EXPECT_THAT(collective_tables(std::vector{p}), AllOf(HasSubstr("50.0 ~"), HasSubstr("busy: node7")));
  p.metrics[Metric::oversubscribed] = true;  // then own threads wait for each other: only steal says something
  EXPECT_THAT(collective_tables(std::vector{p}), AllOf(Not(HasSubstr("~")), Not(HasSubstr("busy:"))));
  p.metrics[Metric::noise_steal] = 0.5;
  EXPECT_THAT(collective_tables(std::vector{p}), HasSubstr("50.0*~"));
}

TEST(CollectiveTable, OverlapShowsTheShareThatWasHidden) {
  Point p = point("ring", true, 10e-3);
  p.factors[Factor::overlap] = std::string("gemm");
  p.metrics[Metric::comm_s] = 8e-3;
  p.metrics[Metric::compute_s] = 8e-3;
  p.metrics[Metric::exposed_s] = 2e-3;
  p.metrics[Metric::overlap_s] = 6e-3;
  const auto text = collective_tables(std::vector{p});
  EXPECT_THAT(text, HasSubstr("hidden"));
  EXPECT_THAT(text, HasSubstr("75"));
}

TEST(CollectiveTable, BothPlacesFitInto120Columns) {
  Point slow = point("hierarchical-leader", false, 0.1234567, 64 << 20), fast = slow;
  fast.factors[Factor::in_place] = true;
  Point no = point("hierarchical-lane", false, 1);
  no.status = core::Status::skipped;
  no.metrics = {};
  no.reason =
      "a reason that is so long that it has to stand below its row, on as many lines as it takes, and not in it";
  const auto text = collective_tables(std::vector{slow, fast, no}, 120);
  std::string_view rest = std::string_view(text).substr(text.find('\n') + 1);  // the heading is prose
  while (!rest.empty()) {
    const auto line = rest.substr(0, rest.find('\n'));
    EXPECT_LE(core::display_width(line), 120u) << line;
    rest.remove_prefix(line.size() + 1);
  }
  EXPECT_THAT(text, HasSubstr("left out: count, p95, p99, max, algbw"));
  EXPECT_THAT(text, HasSubstr("busbw"));
  EXPECT_THAT(text, HasSubstr("\n    skipped: a reason"));
}

TEST(CollectiveCsv, EveryLineHasTheHeadersCells) {
  Point odd = point("ring", false, 1e-3);
  odd.status = core::Status::skipped;
  odd.reason = "says \"no\"";
  odd.metrics = {};
  const auto cells = [](const std::string& line) { return std::count(line.begin(), line.end(), ','); };
  EXPECT_EQ(cells(collective_csv().header()), cells(collective_csv().row(point("ring", true, 1e-3))));
  EXPECT_EQ(cells(collective_csv().header()), cells(collective_csv().row(odd)));
  EXPECT_THAT(collective_csv().row(odd), HasSubstr("\"says \"\"no\"\"\""));
  EXPECT_THAT(collective_csv().header(), HasSubstr("time_median_s"));
}

TEST(CsvText, IsNoFormulaOfASpreadsheet) {
  EXPECT_EQ(report::csv_text("=1+1"), "'=1+1");
  EXPECT_EQ(report::csv_text("@sum(a,b)"), "\"'@sum(a,b)\"");
  EXPECT_EQ(report::csv_text("+cmd|' /C calc'!A0"), "'+cmd|' /C calc'!A0");
  EXPECT_EQ(report::csv_text("-"), "-") << "what has no value";
  EXPECT_EQ(report::csv_text("a=b"), "a=b");
  EXPECT_EQ(report::csv_cell(-1.5), "-1.5") << "a number is one";
}

TEST(CodecComparison, GivesNoVerdictWithoutIntervals) {
  auto plain = point("ring", false, 20e-6), coded = point("ring", false, 10e-6);
  plain.factors[Factor::codec] = std::string("none");
  coded.factors[Factor::codec] = std::string("bf16");
  EXPECT_THAT(codec_comparison(std::vector{plain, coded}), HasSubstr("wins"));
  for (Point* p : {&plain, &coded}) {
    auto few = p->metrics[Metric::time_s].get<core::Summary>();
    few.ci95_low = few.ci95_high = std::nan("");
    p->metrics[Metric::time_s] = few;
    const auto text = codec_comparison(std::vector{plain, coded});
    EXPECT_THAT(text, AllOf(Not(HasSubstr("wins")), Not(HasSubstr("even")), Not(HasSubstr("loses"))));
  }
}

}  // namespace
}  // namespace gradmeter::bench
