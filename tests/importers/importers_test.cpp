// SPDX-License-Identifier: Apache-2.0
// Logs as the tools print them: nccl-tests by the format strings of its src/util.cu, OSU and IMB by logs that people
// published.
#include <gmock/gmock.h>

#include <cmath>

#include "core/format.hpp"
#include "importers/support.hpp"

namespace gradmeter::importers {
namespace {

using core::Factor;
using core::Metric;
using ::testing::HasSubstr;

constexpr std::string_view nccl_log =
    "# nccl-tests version 2.17.1 nccl-headers=22809 nccl-library=22809\n"
    "# Collective test starting: all_reduce_perf\n"
    "# nThread 1 nGpus 2 minBytes 8 maxBytes 1048576 step: 131072(factor) warmup iters: 1 iters: 20 agg iters: 1 "
    "validation: 1 graph: 0 unalign: 0\n"
    "#\n"
    "# Using devices\n"
    "#  Rank  0 Group  0 Pid   4711 on     node01 device  0 [0000:1b:00] NVIDIA H100 80GB HBM3\n"
    "#  Rank  1 Group  0 Pid   4711 on     node01 device  1 [0000:43:00] NVIDIA H100 80GB HBM3\n"
    "#\n"
    "#                                                              out-of-place                       in-place        "
    "  \n"
    "#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  "
    "#wrong \n"
    "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)             (us)  (GB/s)  (GB/s)    "
    "     \n"
    "           8             2     float     sum      -1    11.52    0.00    0.00       0    11.31    0.00    0.00    "
    "   0\n"
    "     1048576        262144     float     sum      -1    31.25   33.55   33.55       0    30.00   34.95   34.95    "
    "   3\n"
    "# Out of bounds values : 3 FAILED\n"
    "# Avg bus bandwidth    : 17.1 \n"
    "#\n";

constexpr std::string_view nccl_json =
    R"({"version":2,"start_time":"2026-01-01 00:00:00","args":[".\/build\/all_gather_perf","-J","x"],"env":[],"nccl_version":22809,)"
    R"("config":{"nthreads":1,"ngpus":1,"minimum_bytes":8,"devices":[{"rank":0},{"rank":1},{"rank":2}]},)"
    R"("results":[{"size":4096,"count":1024,"type":"bfloat16","redop":"none","root":"    -1",)"
    R"("out_of_place":{"time":20.000000,"alg_bw":0.204800,"bus_bw":0.136533,"nwrong":0.000000},)"
    R"("in_place":{"time":10.000000,"alg_bw":0.409600,"bus_bw":0.273067,"nwrong":null},"actual_iterations":20,"experiment_name":"all_gather"}],)"
    R"("out_of_bounds":{"count":0,"okay":"true"}})";

constexpr std::string_view osu_log =
    "\n# OSU MPI Allreduce Latency Test v7.3\n# Datatype: MPI_INT.\n"
    "# Size       Avg Latency(us)   Min Latency(us)   Max Latency(us)  Iterations\n"
    "4                       2.50              2.00              3.00        1000\n"
    "1048576               500.00            400.00            600.00         100\n";

constexpr std::string_view osu_bandwidth =
    "# OSU MPI Bandwidth Test v5.9\n# Size      Bandwidth (MB/s)\n1                       5.00\n4194304             "
    "12000.00\n";

constexpr std::string_view imb_log =
    "#----------------------------------------------------------------\n"
    "# Benchmarking Alltoall \n"
    "# #processes = 2 \n"
    "# ( 2 additional processes waiting in MPI_Barrier)\n"
    "#----------------------------------------------------------------\n"
    "       #bytes #repetitions  t_min[usec]  t_max[usec]  t_avg[usec]\n"
    "            0         1000         0.07         0.07         0.07\n"
    "          256         1000         0.97         6.40         3.70\n"
    "\n"
    "#---------------------------------------------------\n"
    "# Benchmarking PingPong \n"
    "# #processes = 2 \n"
    "#---------------------------------------------------\n"
    "       #bytes #repetitions      t[usec]   Mbytes/sec\n"
    "         1024         1000         1.66       616.87\n";

TEST(NcclTests, BothHalvesOfEachRowAreRead) {
  const auto log = read(nccl_log);
  ASSERT_EQ(log.run.points.size(), 4u);
  const auto& p = log.run.points[2];
  EXPECT_EQ(text(p, Factor::collective), "allreduce");
  EXPECT_EQ(text(p, Factor::ranks), "2");
  EXPECT_EQ(text(p, Factor::size_bytes), "1048576");
  EXPECT_EQ(text(p, Factor::dtype), "fp32");
  EXPECT_EQ(text(p, Factor::op), "sum");
  EXPECT_EQ(text(p, Factor::in_place), "false");
  EXPECT_NEAR(p.metrics.number(Metric::time_s), 31.25e-6, 1e-12);
  EXPECT_NEAR(p.metrics.number(Metric::busbw_bytes_per_s), 33.55e9, 1);
  EXPECT_EQ(log.run.points[3].status, core::Status::wrong);
  EXPECT_EQ(log.run.info.gpus.size(), 2u);
  EXPECT_THAT(log.run.info.hosts, ::testing::ElementsAre("node01"));
  EXPECT_THAT(log.not_stated, HasSubstr("the spread of times"));
}

/// The head's columns are those of -C.
std::string of_cpu_time(std::string_view log) {
  return replaced(replaced(log, "root     time ", "root  cputime "), "#wrong     time ", "#wrong  cputime ");
}

// With -C the rates are those of the whole call, of which the CPU's time is a part.
TEST(NcclTests, ATimeOfTheCpuHasNoRates) {
  const auto log = read(replaced(of_cpu_time(nccl_log), "31.25", " 8.00"));
  ASSERT_EQ(log.run.points.size(), 4u);
  EXPECT_EQ(log.faults, "");
  const auto& p = log.run.points[2];
  EXPECT_EQ(p.status, core::Status::ok);
  EXPECT_EQ(text(p, Factor::problem), "time=cpu");
  EXPECT_NEAR(number(p, Metric::time_s), 8e-6, 1e-12);
  EXPECT_TRUE(core::is_null(p.metrics[Metric::algbw_bytes_per_s]));
  EXPECT_TRUE(core::is_null(p.metrics[Metric::busbw_bytes_per_s]));
  EXPECT_THAT(log.not_stated, HasSubstr("rates of the CPU's times"));
  // The rates still tell the number of ranks.
  EXPECT_EQ(read(replaced(of_cpu_time(nccl_log), "33.55   33.55", "33.55   99.55")).run.points[2].status,
            core::Status::mistrusted);
}

TEST(NcclTests, ABarrierAfterOuterIterationsIsAnotherProblem) {
  const auto problem = [](const char* line) {
    return text(
        read(replaced(nccl_log, "#\n# Using", fmt::format("# Blocking Enabled: {}\n#\n# Using", line))).run.points[0],
        Factor::problem);
  };
  EXPECT_EQ(problem("wait and barrier after each inner iteration (-m) "), "blocking=barrier");
  EXPECT_EQ(problem("wait after each inner iteration (-m), no barrier "), "blocking=wait");
  EXPECT_EQ(problem("wait and barrier after each outer iteration (-n); time excludes barrier "),
            "blocking=outer-barrier");
}

TEST(NcclTests, OldLogsNeedTheCollectivesName) {
  std::string old(nccl_log);
  old.erase(old.find("# Collective test starting"), old.find("# nThread") - old.find("# Collective test starting"));
  EXPECT_THAT(read(old).not_stated, HasSubstr("its collective (allreduce by its columns and bus bandwidth)"));
  const std::string small = replaced(replaced(old, "33.55   33.55", " 0.55    0.55"), "34.95   34.95", " 0.95    0.95");
  EXPECT_THAT(refusal(small), HasSubstr("give --collective"));  // rates of too few digits
  const auto with = [](const char* name) { return UserFacts{.ranks = 0, .collective = name, .interconnect = ""}; };
  EXPECT_EQ(text(read(small, with("reduce_scatter")).run.points[0], Factor::collective), "reduce_scatter");
  EXPECT_THAT(refusal(small, with("reduce")), HasSubstr("line 11: its rows have no root, but --collective reduce"));
  EXPECT_THAT(refusal(small, with("all_gather")), HasSubstr("its rows have the operation sum, but --collective"));
  EXPECT_THAT(refusal(old, with("reduce_scatter")), HasSubstr("its columns and bus bandwidth are those of allreduce"));
}

// A process prints 2048 bytes of its list, and the last of its ranks are not in it.
TEST(NcclTests, RanksAreThoseOfItsProcessesWhereTheListIsCut) {
  const std::string cut =
      replaced(replaced(replaced(nccl_log, "all_reduce_perf", "broadcast_perf"), "nGpus 2", "nGpus 16"),
               "[0000:43:00] NVIDIA H100 80GB HBM3", "[0000:4...");
  EXPECT_EQ(text(read(cut).run.points[0], Factor::ranks), "16");
  EXPECT_THAT(refusal(replaced(cut, "# nThread 1 nGpus 16", "# lost")),
              HasSubstr("the list of ranks is cut, and no line '# nThread ... nGpus ...' says how many there are"));
  const std::string gap = replaced(replaced(replaced(nccl_log, "nGpus 2", "nGpus 1"), "Rank  1", "Rank  2"),
                                   "all_reduce_perf", "broadcast_perf");
  EXPECT_THAT(read(gap).run.points[0].reason, HasSubstr("the list of ranks lacks one"));
  EXPECT_EQ(text(read(gap, {.ranks = 4, .collective = "", .interconnect = ""}).run.points[0], Factor::ranks), "4");
}

TEST(NcclTests, WhatTheUserSaysAgainstTheLogIsRefused) {
  EXPECT_THAT(refusal(nccl_log, {.ranks = 4, .collective = "", .interconnect = ""}),
              HasSubstr("line 7: it says 2 ranks, but --ranks 4, and rates depend on it; leave --ranks out"));
  EXPECT_THAT(refusal(nccl_log, {.ranks = 0, .collective = "reduce", .interconnect = ""}),
              HasSubstr("it says allreduce, but --collective reduce; leave --collective out"));
}

TEST(NcclTests, WhatTheBusBandwidthContradictsIsRefused) {
  const std::string log =
      "#                   in-place                       out-of-place\n"
      "#       size         count     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong\n"
      "     1048576        262144    40.50   25.89   45.31  0    39.80   26.35   46.11  0\n";
  EXPECT_EQ(text(read(log).run.points.at(0), Factor::ranks), "null");
  EXPECT_THAT(refusal(log, {.ranks = 4, .collective = "", .interconnect = ""}),
              HasSubstr("line 3: busbw is 1.75 times algbw, but 1.5 times for allreduce of 4 ranks"));
  EXPECT_THAT(refusal(log, {.ranks = 0, .collective = "reduce", .interconnect = ""}),
              HasSubstr("line 3: its columns and bus bandwidth are those of allreduce, but --collective reduce"));
}

TEST(NcclTests, WithoutTheLineThatNamesTheHalvesTheSecondIsInPlace) {
  const auto log = read(replaced(nccl_log, "out-of-place                       in-place", ""));
  ASSERT_EQ(log.run.points.size(), 4u);
  EXPECT_EQ(text(log.run.points[2], Factor::in_place), "false");
  EXPECT_EQ(text(log.run.points[3], Factor::in_place), "true");
}

TEST(NcclTests, ACutRowIsNamed) {
  const std::string cut(std::string(nccl_log.substr(0, nccl_log.find("33.55"))) + "\n");
  EXPECT_EQ(read(cut + "node01: Test NCCL failure common.cu:303\n").faults,
            "left out: line 13, the last row, which is cut");
  EXPECT_EQ(read(cut + std::string(nccl_log.substr(nccl_log.find("     1048576")))).faults,
            "left out: 1 row that cannot be read (line 13: the row is cut; it should have 13 columns)");
  std::string odd(nccl_log);
  odd.replace(odd.find("31.25"), 5, "31,25");
  EXPECT_THAT(read(odd).faults, HasSubstr("line 13: '31,25' is no number"));
}

// "40.5" may be the beginning of "40.50", and "1048" of "1048576".
TEST(NcclTests, ALastLineWithoutItsEndIsLeftOutAndSaid) {
  const std::string whole(nccl_log.substr(0, nccl_log.find("# Out of bounds")));
  EXPECT_EQ(read(whole).faults, "");
  const auto cut = read(whole.substr(0, whole.size() - 1));
  EXPECT_EQ(cut.run.points.size(), 2u);
  EXPECT_EQ(cut.faults, "left out: line 13, the last row, which is cut");
  EXPECT_EQ(read(nccl_log.substr(0, nccl_log.size() - 1)).run.points.size(), 4u);  // ends with "#"
  EXPECT_THAT(refusal(whole.substr(0, whole.find("0.00"))), HasSubstr("no row to import; left out: line 12"));
}

TEST(NcclTests, UnitsAreThoseOfTheHead) {
  const std::string units = "(us)  (GB/s)  (GB/s)             (us)  (GB/s)  (GB/s)";
  const auto log = read(replaced(nccl_log, units, "(ms)  (MB/s)  (MB/s)             (us)  (GB/s)  (GB/s)"));
  EXPECT_NEAR(number(log.run.points[2], Metric::time_s), 31.25e-3, 1e-12);
  EXPECT_NEAR(number(log.run.points[2], Metric::busbw_bytes_per_s), 33.55e6, 1);
  EXPECT_NEAR(number(log.run.points[3], Metric::time_s), 30e-6, 1e-12);
  EXPECT_EQ(log.faults, "");
  EXPECT_THAT(refusal(replaced(nccl_log, "(us)", "(min)")),
              HasSubstr("line 11: the unit of times 'min' is not known; known are ns, us, ms and s"));
  EXPECT_THAT(refusal(replaced(nccl_log, "(GB/s)", "(GB/h)")), HasSubstr("line 11: the unit of rates 'GB/h'"));
}

TEST(NcclTests, TimesOfNothingAreNoPointsAndCounted) {
  for (const std::string_view time : {" 0.00", "-1.25"}) {
    const auto log = read(replaced(nccl_log, "31.25", time));
    EXPECT_EQ(log.run.points.size(), 3u) << time;
    EXPECT_EQ(log.faults, "left out: 1 row whose time or rate is 0 or less");
  }
  EXPECT_EQ(read(replaced(nccl_log, "           8 ", "           0 ")).faults, "left out: 1 row of 0 bytes");
}

TEST(NcclTests, ColumnsThatContradictEachOtherAreMistrusted) {
  const auto slow = read(replaced(nccl_log, "31.25", "31250"));
  EXPECT_EQ(slow.run.points[2].status, core::Status::mistrusted);
  EXPECT_EQ(slow.run.points[2].reason,
            "its columns contradict each other: 1 MiB in 31.2 ms are 33.6 MB/s, but algbw says 33.5 GB/s");
  EXPECT_EQ(slow.faults, "mistrusted: 1 row whose columns contradict each other");
  EXPECT_EQ(read(replaced(nccl_log, "33.55   33.55", "33.55   99.55")).run.points[2].status, core::Status::mistrusted);
  EXPECT_EQ(read(nccl_log).faults, "");  // 0.00 GB/s of 8 bytes are rounded
}

TEST(NcclTestsJson, ContradictionsAndTimesOfNothingAreCounted) {
  const auto odd = read(replaced(nccl_json, "\"time\":20.000000", "\"time\":0.020000"));
  EXPECT_EQ(odd.run.points[0].status, core::Status::mistrusted);
  EXPECT_EQ(odd.faults, "mistrusted: 1 row whose columns contradict each other");
  EXPECT_EQ(read(replaced(nccl_json, "\"time\":20.000000", "\"time\":-20.0")).faults,
            "left out: 1 row whose time or rate is 0 or less");
}

TEST(NcclTestsJson, IsRead) {
  const auto log = read(nccl_json);
  ASSERT_EQ(log.run.points.size(), 2u);
  EXPECT_EQ(text(log.run.points[0], Factor::collective), "all_gather");
  EXPECT_EQ(text(log.run.points[0], Factor::ranks), "3");
  EXPECT_EQ(text(log.run.points[0], Factor::dtype), "bf16");
  EXPECT_EQ(text(log.run.points[0], Factor::op), "null");
  EXPECT_NEAR(log.run.points[1].metrics.number(Metric::time_s), 10e-6, 1e-12);
  EXPECT_TRUE(core::is_null(log.run.points[1].metrics[Metric::wrong]));
}

// -I writes events of the GPU, the slowest process of each iteration; the row's time and rates are the CPU's mean.
TEST(NcclTestsJson, IterationsHaveTheirOwnRatesAndLackThoseThatWereSkipped) {
  const std::string iterations =
      R"("out_of_place_per_iter":{"skipped_iterations":2,"times_us":[900,800,16,16,18,15,16,17]},"in_place":)";
  const auto log = read(replaced(nccl_json, "\"in_place\":", iterations));
  ASSERT_EQ(log.run.points.size(), 2u);
  const auto& p = log.run.points[0];
  EXPECT_EQ(p.raw_times_s.size(), 6u);
  EXPECT_TRUE(std::isnan(p.metrics[Metric::time_s].get<core::Summary>().ci95_low)) << "they are not independent";
  EXPECT_EQ(text(p, Factor::reduction), "max");
  EXPECT_NEAR(number(p, Metric::time_s), 16e-6, 1e-12);
  EXPECT_NEAR(number(p, Metric::algbw_bytes_per_s), 4096 / 16e-6, 1);
  EXPECT_NEAR(number(p, Metric::busbw_bytes_per_s), 4096 / 16e-6 * 2 / 3, 1);
  EXPECT_EQ(text(log.run.points[1], Factor::reduction), "null");
  const auto of_cpu =
      read(replaced(replaced(nccl_json, "\"in_place\":", iterations), "\"time\":20.0", "\"cpu_time\":2.0"));
  EXPECT_EQ(of_cpu.run.points[0].status, core::Status::ok);
  EXPECT_NEAR(number(of_cpu.run.points[0], Metric::time_s), 2e-6, 1e-12);
  EXPECT_TRUE(of_cpu.run.points[0].raw_times_s.empty());
  EXPECT_TRUE(core::is_null(of_cpu.run.points[0].metrics[Metric::busbw_bytes_per_s]));
  EXPECT_THAT(refusal(replaced(nccl_json, "\"in_place\":", replaced(iterations, ":2,", ":-2,"))),
              HasSubstr("result 1: 'skipped_iterations' is -2, which is no count"));
}

TEST(NcclTestsJson, WhatBrokeOffIsRefused) {
  EXPECT_THAT(refusal(nccl_json.substr(0, 400)), HasSubstr("no whole JSON"));
  std::string odd(nccl_json);
  odd.replace(odd.find("\"alg_bw\""), 8, "\"algbww\"");
  EXPECT_THAT(refusal(odd), HasSubstr("result 1: 'alg_bw' is missing"));
}

TEST(Osu, LatencyAndBandwidthAreRead) {
  const auto log = read(osu_log, {.ranks = 4, .collective = "", .interconnect = "ib"});
  ASSERT_EQ(log.run.points.size(), 2u);
  const auto& p = log.run.points[1];
  EXPECT_EQ(text(p, Factor::collective), "allreduce");
  EXPECT_EQ(text(p, Factor::interconnect), "ib");
  EXPECT_EQ(text(p, Factor::reduction), "max");
  EXPECT_EQ(text(p, Factor::dtype), "int32");
  EXPECT_NEAR(p.metrics.number(Metric::time_s), 600e-6, 1e-12);
  EXPECT_NEAR(p.metrics.number(Metric::busbw_bytes_per_s), 1.5 * 1048576 / 600e-6, 1);
  EXPECT_NEAR(p.metrics.number(Metric::ranks_spread), 1.5, 1e-12);
  const auto bandwidth = read(osu_bandwidth);
  EXPECT_EQ(text(bandwidth.run.points[1], Factor::ranks), "2");
  EXPECT_NEAR(bandwidth.run.points[1].metrics.number(Metric::algbw_bytes_per_s), 12e9, 1);
  EXPECT_THAT(read(osu_log).not_stated, HasSubstr("the number of ranks"));
}

TEST(Osu, UnitsAreThoseOfTheHead) {
  EXPECT_NEAR(number(read(replaced(osu_bandwidth, "(MB/s)", "(GB/s)")).run.points[1], Metric::algbw_bytes_per_s), 12e12,
              1e3);
  EXPECT_THAT(refusal(replaced(osu_bandwidth, "(MB/s)", "(MB)")), HasSubstr("line 2: the unit of rates 'MB'"));
}

TEST(Osu, RowsThatCannotBeAreCounted) {
  EXPECT_EQ(read(replaced(osu_bandwidth, "12000.00", "0.00")).faults,
            "left out: 1 row whose time or rate is 0 or less");
  EXPECT_EQ(read(replaced(osu_log, "600.00", "450.00")).run.points[1].status, core::Status::mistrusted);
  EXPECT_EQ(read(osu_log.substr(0, osu_log.size() - 1)).faults, "left out: line 6, the last row, which is cut");
}

TEST(Osu, RowsWithoutTheirHeadAreRefused) {
  EXPECT_THAT(refusal("# OSU MPI Latency Test v5.9\n1   2.0\n"), HasSubstr("line 2"));
  EXPECT_THAT(refusal("# OSU MPI Latency Test v5.9\n# Size          Latency (us)\n1024\n"),
              HasSubstr("no row to import; left out: line 3, the last row, which is cut"));
  EXPECT_EQ(read("# OSU MPI Latency Test v5.9\n# Size          Latency (us)\n1024\n2048   2.00\n4096   3.00\n").faults,
            "left out: 2 rows that cannot be read (line 3: the row is cut; it should have 2 columns)");
}

TEST(Imb, EachTableHasItsRanksAndItsSlowestRank) {
  const auto log = read(imb_log);
  ASSERT_EQ(log.run.points.size(), 2u);
  EXPECT_EQ(text(log.run.points[0], Factor::collective), "all_to_all");
  EXPECT_EQ(text(log.run.points[0], Factor::ranks), "2");
  EXPECT_EQ(text(log.run.points[0], Factor::reduction), "max");
  EXPECT_NEAR(log.run.points[0].metrics.number(Metric::time_s), 6.4e-6, 1e-12);
  EXPECT_EQ(text(log.run.points[1], Factor::collective), "ping_pong");
  EXPECT_NEAR(log.run.points[1].metrics.number(Metric::algbw_bytes_per_s), 616.87e6, 1e4);
}

TEST(Imb, UnitsAndRowsThatCannotBe) {
  const auto log = read(imb_log);
  EXPECT_EQ(log.faults, "left out: 1 row of 0 bytes");
  const auto milliseconds =
      read(replaced(imb_log, "t_min[usec]  t_max[usec]  t_avg[usec]", "t_min[msec] t_max[msec] t_avg[msec]"));
  EXPECT_NEAR(number(milliseconds.run.points[0], Metric::time_s), 6.4e-3, 1e-12);
  EXPECT_THAT(read(replaced(imb_log, "616.87", "  0.62")).faults, HasSubstr("mistrusted: 1 row"));
  EXPECT_THAT(read(replaced(imb_log, "0.97         6.40", "0.97         1.40")).faults, HasSubstr("mistrusted: 1 row"));
  EXPECT_THAT(read(replaced(imb_log, "1.66 ", "0.00 ")).faults, HasSubstr("1 row whose time or rate is 0 or less"));
}

std::string fingerprint(std::string_view log, const char* label = "x.log", const UserFacts& user_facts = {}) {
  return import_log(log, label, "auto", user_facts).runs.front().info.fingerprint;
}

TEST(Logs, OfOtherMachinesAreNoLaunchesOfOneMachine) {
  const std::string own = fingerprint(nccl_log);
  EXPECT_FALSE(own.empty());
  std::string other(nccl_log);
  while (other.find("H100 80GB HBM3") != std::string::npos) other = replaced(other, "H100 80GB HBM3", "A100-SXM4-40GB");
  EXPECT_NE(fingerprint(other), own);
  EXPECT_NE(fingerprint(replaced(replaced(nccl_log, "node01", "old-1"), "node01", "old-1")), own);
  // Another launch, on other nodes of the cluster or on fewer GPUs of a node, is of the same machine.
  EXPECT_EQ(fingerprint(replaced(replaced(nccl_log, "31.25", "31.26"), "node01", "node02"), "y.log"), own);
  EXPECT_EQ(fingerprint(replaced(nccl_log,
                                 "#  Rank  1 Group  0 Pid   4711 on     node01 device  1 [0000:43:00] "
                                 "NVIDIA H100 80GB HBM3\n",
                                 ""),
                        "y.log", {.ranks = 2, .collective = "", .interconnect = ""}),
            own);
  const std::string json = replaced(
      replaced(nccl_json, "{\"rank\":0}", R"({"rank":0,"hostname":"node03","device_info":"NVIDIA H100 80GB HBM3"})"),
      "{\"rank\":1}", R"({"rank":1,"hostname":"node01","device_info":"NVIDIA H100 80GB HBM3"})");
  EXPECT_EQ(fingerprint(json), own);
}

TEST(Logs, WithoutHostsAreEachOfAMachineOfTheirOwnUnlessALabelSaysMore) {
  const std::string again = replaced(osu_log, "500.00", "501.00");
  EXPECT_NE(fingerprint(osu_log, "a.log"), fingerprint(again, "b.log"));
  EXPECT_EQ(fingerprint(osu_log, "a.log"), fingerprint(osu_log, "a.log"));
  const UserFacts labelled{.ranks = 0, .collective = "", .interconnect = "", .machine = "old cluster"};
  EXPECT_EQ(fingerprint(osu_log, "a.log", labelled), fingerprint(again, "b.log", labelled));
  EXPECT_EQ(fingerprint(nccl_log, "n.log", labelled), fingerprint(again, "b.log", labelled));
  const auto launches = read(std::string(osu_log) + std::string(osu_log));
  ASSERT_EQ(launches.runs.size(), 2u);
  EXPECT_EQ(launches.runs[0].info.fingerprint, launches.runs[1].info.fingerprint);
}

TEST(Logs, SayRanksAndNodesOnlyWhereTheyAreKnown) {
  const auto info = [](std::string_view log, const UserFacts& user_facts = {}) {
    return read(log, user_facts).run.info;
  };
  EXPECT_EQ(info(nccl_log).ranks, 2);
  EXPECT_EQ(info(nccl_log).nodes, 1);
  EXPECT_EQ(info(replaced(nccl_log, "node01", "node02")).nodes, 2);
  EXPECT_EQ(info(replaced(nccl_log, "0000:43:00] NVIDIA H100 80GB HBM3", "0000:4...")).nodes, 0);
  EXPECT_EQ(info(nccl_json).ranks, 3);
  EXPECT_EQ(info(nccl_json).nodes, 0);
  EXPECT_EQ(info(osu_log).ranks, 0);
  EXPECT_EQ(info(osu_log).nodes, 0);
  EXPECT_EQ(info(osu_log, {.ranks = 8, .collective = "", .interconnect = ""}).ranks, 8);
  EXPECT_EQ(info(osu_log, {.ranks = 8, .collective = "", .interconnect = ""}).nodes, 0);
}

TEST(Logs, SayTheVersionOfNccl) {
  EXPECT_EQ(read(nccl_log).run.info.libraries.at("NCCL"), "2.28.9");
  EXPECT_EQ(read(nccl_json).run.info.libraries.at("NCCL"), "2.28.9");
  EXPECT_EQ(read(replaced(nccl_log, "library=22809", "library=2708")).run.info.libraries.at("NCCL"), "2.7.8");
}

TEST(Logs, OfNoKnownFormatAndWithoutRowsAreRefused) {
  EXPECT_THAT(refusal("hello\n"), HasSubstr("no known log"));
  EXPECT_THAT(refusal(""), HasSubstr("no known log"));
  EXPECT_THAT(refusal(nccl_log.substr(0, 300)), HasSubstr("no row"));
  EXPECT_THROW(import_log(osu_log, "x", "nccl", {}), core::UsageError);
}

// Whatever the bytes: an error or points, never a crash.
TEST(Logs, CutAnywhereAreReadOrRefused) {
  for (const auto log : {nccl_log, nccl_json, osu_log, osu_bandwidth, imb_log}) {
    for (std::size_t cut = 0; cut < log.size(); cut += 7) refusal(log.substr(0, cut));
    for (std::size_t at = 0; at < log.size(); at += 11) {
      std::string changed(log);
      changed[at] = static_cast<char>(at * 37 % 256);
      refusal(changed, {.ranks = 2, .collective = "allreduce", .interconnect = ""});
    }
  }
}

// A folder of logs of one suite has such among those with rows.
TEST(OtherKinds, ALogOfNothingElseIsARunWithoutPoints) {
  const std::string head = "# OSU MPI Barrier Latency Test v7.4\n# Avg Latency(us)\n",
                    put = "# OSU MPI_Put Latency Test v7.4\n# Size        Latency (us)\n8                   2.90\n",
                    ours = "# OSU MPI Latency Test v7.4\n# Size     Avg Latency(us)\n";
  for (const UserFacts& user_facts :
       {UserFacts{}, UserFacts{.ranks = 8, .collective = "allreduce", .interconnect = {}}}) {
    const auto log = read(head + "             2.31\n" + put, user_facts);
    ASSERT_EQ(log.runs.size(), 1u);
    EXPECT_TRUE(log.run.points.empty());
    EXPECT_EQ(log.run.info.command, "imported from x.log");
    EXPECT_EQ(log.faults,
              "left out: 1 row of 'MPI Barrier Latency Test' (line 3: no kind of gradmeter's), "
              "1 row of 'MPI_Put Latency Test' (line 6: no kind of gradmeter's)");
  }
  // A row of ours that cannot be read is not of another kind, nor is a table of which nobody knows what it is.
  EXPECT_THAT(refusal(put + ours + "8      2,00\n"), HasSubstr("no row to import; left out: 1 row of 'MPI_Put"));
  EXPECT_THAT(refusal(put + ours + "0      2.00\n"), HasSubstr("1 row of 0 bytes"));
  EXPECT_THAT(refusal("# OSU MPI_Put Latency Test v7.4\n# MPI Alltoall Latency Test\n# Size  Latency(us)\n8   2.9\n"),
              HasSubstr("(line 4: of another tool)"));
  EXPECT_THAT(refusal(head), HasSubstr("it has no row"));
}

}  // namespace
}  // namespace gradmeter::importers
