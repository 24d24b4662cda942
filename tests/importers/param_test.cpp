// SPDX-License-Identifier: Apache-2.0
// A log of comms.py itself, over gloo on two ranks, and rows by its format strings.
#include <gmock/gmock.h>

#include "importers/support.hpp"

namespace gradmeter::importers {
namespace {

using core::Factor;
using core::Metric;
using ::testing::HasSubstr;

TEST(Param, EachCollectivesTableIsRead) {
  const auto log = read(log_file("param.txt"));
  ASSERT_EQ(log.run.points.size(), 9u);
  const auto& p = log.run.points[5];  // all_gather of 1024 bytes
  EXPECT_EQ(text(p, Factor::collective), "all_gather");
  EXPECT_EQ(text(p, Factor::size_bytes), "1024");
  EXPECT_EQ(text(p, Factor::dtype), "fp32");
  EXPECT_EQ(text(p, Factor::ranks), "2");
  EXPECT_EQ(text(p, Factor::reduction), "max");
  EXPECT_NEAR(number(p, Metric::time_s), 677.9e-6, 1e-12);
  EXPECT_NEAR(number(p, Metric::busbw_bytes_per_s), 512 / 677.9e-6, 1);
  EXPECT_NEAR(number(p, Metric::ranks_spread), 677.9 / 480.6, 1e-9);
  EXPECT_TRUE(core::is_null(p.metrics[Metric::wrong]));
  EXPECT_THAT(log.not_stated, HasSubstr("the spread of times over iterations"));
}

TEST(Param, TagsAndOtherNamesAreUnderstood) {
  const auto log =
      read(replaced(log_file("param.txt"), "-all_reduce-float32 ", "-reduce_scatter_base-bfloat16-night "));
  EXPECT_EQ(text(log.run.points[0], Factor::collective), "reduce_scatter");
  EXPECT_EQ(text(log.run.points[0], Factor::dtype), "bf16");
}

// Another writer of the terminal broke the line between two numbers.
TEST(Param, ARowInTwoPiecesIsRead) {
  std::string log = log_file("param.txt");
  const std::size_t row = log.find("COMMS-RES-all_reduce-float32"), end = log.find('\n', row);
  ASSERT_NE(end, std::string::npos);
  log.insert(log.find_last_of(" \t", log.find_last_not_of(" \t", end - 1)), "\n");
  const auto torn = read(log), whole = read(log_file("param.txt"));
  EXPECT_EQ(torn.faults, "");
  ASSERT_EQ(torn.run.points.size(), whole.run.points.size());
  EXPECT_EQ(text(torn.run.points[0], Factor::dtype), "fp32");
  EXPECT_EQ(number(torn.run.points[0], Metric::busbw_bytes_per_s),
            number(whole.run.points[0], Metric::busbw_bytes_per_s));
}

TEST(Param, OtherTablesAreLeftOutAndSaid) {
  const auto log =
      read(log_file("param.txt") +
           "\n\tCOMMS-RES-QUANT\t  size (B)  nElementsPerRank  P95 Latency(us): Quant  Comms  De-Quant  Overall\n"
           "\tCOMMS-RES-QUANT-all_reduce-float32\t   64   16   1.0   2.0   3.0   6.0\n"
           "\n\tCOMMS-RES   size (B)  pingLatency(us):p50   p75   p95  pingPongLatency(us):p50\n"
           "\tCOMMS-RES-pt2pt-float32   64   1.0  1.0  1.0  2.0  2.0  2.0  0.1  0.1  0.1  0.1\n");
  EXPECT_EQ(log.run.points.size(), 9u);
  EXPECT_THAT(log.faults, HasSubstr("1 row of 'pt2pt' (line "));
  EXPECT_THAT(log.faults, HasSubstr("1 row of 'quantized collectives' (line "));
}

TEST(Param, UnitsAreThoseOfTheHead) {
  const std::string log = log_file("param.txt");
  EXPECT_EQ(read(log).faults, "");
  const auto milliseconds = read(replaced(log, "Time(us):p50", "Time(ms):p50"));
  EXPECT_NEAR(number(milliseconds.run.points[0], Metric::time_s), 7.8582, 1e-9);
  EXPECT_THAT(refusal(replaced(log, "AlgBW(GB/s)", "AlgBW(GB/m)")), HasSubstr("line 8: the unit of rates 'GB/m'"));
}

TEST(Param, RowsWithoutTimesOrWithContradictionsAreCounted) {
  const std::string log = log_file("param.txt");
  EXPECT_EQ(read(replaced(log, "7858.2", "   0.0")).faults, "left out: 1 row whose time or rate is 0 or less");
  const auto odd = read(replaced(log, "0.001       0.001", "1.001       1.001"));
  EXPECT_EQ(odd.faults, "mistrusted: 1 row whose columns contradict each other");
  EXPECT_THAT(odd.run.points[2].reason, HasSubstr("algbw says 1"));
}

TEST(Param, ABadRowIsNamedByItsLine) {
  const std::string log = log_file("param.txt");
  EXPECT_THAT(refusal(log.substr(0, log.find("7858.2")) + "\n"),
              HasSubstr("left out: line 9, the last row, which is cut"));
  EXPECT_THAT(read(replaced(log, "7858.2", "nan   ")).faults, HasSubstr("line 9: 'nan' is no number"));
  EXPECT_THAT(refusal(replaced(log, "groupSize 2", "groupSize -2")), HasSubstr("is no count"));
}

}  // namespace
}  // namespace gradmeter::importers
