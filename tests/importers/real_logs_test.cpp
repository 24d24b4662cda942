// SPDX-License-Identifier: Apache-2.0
// Logs that the tools themselves printed, on two ranks of a small machine: OSU Micro-Benchmarks 7.4 and Intel MPI
// Benchmarks 2021.11 over Open MPI.
#include <gmock/gmock.h>

#include "importers/support.hpp"

namespace gradmeter::importers {
namespace {

using core::Factor;
using core::Metric;
using ::testing::HasSubstr;
using ::testing::Not;

const UserFacts two{.ranks = 2, .collective = "", .interconnect = ""};

TEST(RealOsu, LatencyHasTheSlowestRanksTimeWhereItIsSaid) {
  const auto log = read(log_file("osu_allreduce.txt"), two);
  ASSERT_EQ(log.run.points.size(), 9u);
  const auto& p = log.run.points[6];  // 256 bytes: 12.79 on average, 0.79 to 24.80
  EXPECT_EQ(text(p, Factor::size_bytes), "256");
  EXPECT_EQ(text(p, Factor::dtype), "int8");
  EXPECT_EQ(text(p, Factor::reduction), "max");
  EXPECT_NEAR(number(p, Metric::time_s), 24.80e-6, 1e-12);
  EXPECT_NEAR(number(p, Metric::busbw_bytes_per_s), 256 / 24.80e-6, 1);
  EXPECT_NEAR(number(p, Metric::ranks_spread), 24.80 / 0.79, 1e-9);
  EXPECT_THAT(log.not_stated, HasSubstr("whether results were right"));
}

TEST(RealOsu, ARowWhoseValidationFailedIsWrong) {
  const auto log = read(log_file("osu_allreduce_failed.txt"), two);
  ASSERT_EQ(log.run.points.size(), 3u);
  EXPECT_EQ(log.run.points[1].status, core::Status::ok);
  EXPECT_EQ(number(log.run.points[1], Metric::time_s), 0.69e-6);
  EXPECT_EQ(core::to_text(log.run.points[1].metrics[Metric::wrong]), "0");
  EXPECT_EQ(log.run.points[2].status, core::Status::wrong);
  EXPECT_THAT(log.not_stated, Not(HasSubstr("whether results were right")));
}

TEST(RealOsu, PointToPointNeedsNoRanks) {
  const auto latency = read(log_file("osu_latency.txt")), rate = read(log_file("osu_bw.txt"));
  EXPECT_EQ(text(latency.run.points[0], Factor::collective), "ping_pong");
  EXPECT_EQ(text(latency.run.points[0], Factor::reduction), "avg");
  EXPECT_NEAR(number(latency.run.points[6], Metric::time_s), 3.81e-6, 1e-12);
  EXPECT_EQ(text(rate.run.points[6], Factor::ranks), "2");
  EXPECT_NEAR(number(rate.run.points[6], Metric::algbw_bytes_per_s), 343.69e6, 1);
}

TEST(RealOsu, AnAllGathersSizeIsTheWholeBuffer) {
  EXPECT_THAT(refusal(log_file("osu_allgather.txt")),
              HasSubstr("line 5: the size of an all_gather is one rank's part"));
  const auto log = read(log_file("osu_allgather.txt"), two);
  EXPECT_EQ(text(log.run.points[6], Factor::size_bytes), "128");
  EXPECT_NEAR(number(log.run.points[6], Metric::algbw_bytes_per_s), 128 / 0.75e-6, 1);
  EXPECT_NEAR(number(log.run.points[6], Metric::busbw_bytes_per_s), 64 / 0.75e-6, 1);
}

// DeepBench ships a copy that prints milliseconds and the number of ranks.
TEST(RealOsu, MillisecondsAreRead) {
  const auto log = read(
      "# OSU MPI Allreduce Latency Test\n# Number of Ranks 16\n"
      "# Size         Avg Latency(ms)     Min Latency(ms)     Max Latency(ms)  Iterations\n"
      "100000                    0.50                0.40                0.80        1000\n");
  EXPECT_EQ(text(log.run.points.at(0), Factor::ranks), "16");
  EXPECT_NEAR(number(log.run.points[0], Metric::time_s), 0.8e-3, 1e-12);
}

TEST(RealImb, EveryTableIsRead) {
  const auto log = read(log_file("imb.txt"));
  ASSERT_EQ(log.run.points.size(),
            15u);  // five sizes each of allreduce, allgather, ping-pong; those of 0 bytes are none
  EXPECT_EQ(text(log.run.points[0], Factor::collective), "allreduce");
  EXPECT_NEAR(number(log.run.points[4], Metric::time_s), 0.80e-6, 1e-12);
  EXPECT_EQ(text(log.run.points[9], Factor::collective), "all_gather");
  EXPECT_EQ(text(log.run.points[9], Factor::size_bytes), "512");
  EXPECT_EQ(text(log.run.points[10], Factor::collective), "ping_pong");
}

}  // namespace
}  // namespace gradmeter::importers
