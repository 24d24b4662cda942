// SPDX-License-Identifier: Apache-2.0
// A log by the calls of NVIDIA/nccl's plugins/profiler/inspector/inspector_json.cc.
#include <gmock/gmock.h>

#include <cmath>
#include <sstream>

#include "importers/support.hpp"

namespace gradmeter::importers {
namespace {

using core::Factor;
using core::Metric;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Inspector, CallsOfOneKindAreAPointWithTheirSpread) {
  const auto log = read(log_file("nccl_inspector.jsonl"));
  ASSERT_EQ(log.run.points.size(), 3u);  // a broadcast of 0 µs says nothing
  const auto& p = log.run.points[1];
  EXPECT_EQ(text(p, Factor::collective), "allreduce");
  EXPECT_EQ(text(p, Factor::size_bytes), "67108864");
  EXPECT_EQ(text(p, Factor::ranks), "4");
  EXPECT_EQ(text(p, Factor::nodes), "1");
  EXPECT_EQ(text(p, Factor::dtype), "null");
  EXPECT_EQ(text(p, Factor::reduction), "max");
  // of each call the slower of two ranks
  ASSERT_EQ(p.raw_times_s.size(), 6u);
  EXPECT_NEAR(p.raw_times_s[1], 405e-6, 1e-12);
  const auto& times = p.metrics[Metric::time_s].get<core::Summary>();
  EXPECT_NEAR(times.median, 407.5e-6, 1e-12);
  EXPECT_NEAR(times.max, 450e-6, 1e-12);
  EXPECT_EQ(times.n, 6u);
  EXPECT_TRUE(std::isnan(times.ci95_low) && std::isnan(times.ci95_high)) << "calls in a row are not independent";
  EXPECT_NEAR(number(p, Metric::busbw_bytes_per_s), 1.5 * 67108864 / 407.5e-6, 1);
  EXPECT_THAT(log.run.info.hosts, ElementsAre("node01"));
  EXPECT_THAT(log.not_stated, HasSubstr("1 sends and receives are left out"));
}

// Their rates in the log are of the whole buffer too.
TEST(Inspector, SizesOfPartsBecomeTheWholeBuffer) {
  const auto log = read(log_file("nccl_inspector.jsonl"));
  EXPECT_EQ(text(log.run.points[0], Factor::collective), "all_gather");
  EXPECT_EQ(text(log.run.points[0], Factor::size_bytes), "4194304");
  EXPECT_NEAR(number(log.run.points[0], Metric::algbw_bytes_per_s), 38.130036e9, 1e4);
  EXPECT_EQ(text(log.run.points[2], Factor::collective), "reduce_scatter");
  EXPECT_EQ(text(log.run.points[2], Factor::size_bytes), "4194304");
  EXPECT_NEAR(number(log.run.points[2], Metric::busbw_bytes_per_s), 31.45728e9, 1e4);
}

/// The log's calls, and once more by a communicator with another id, name and number of nodes; its calls take twice as
/// long.
std::string with_second_communicator(const std::string& log, std::string_view name, std::string_view nodes) {
  std::string out = log, line;
  std::istringstream lines(log);
  while (std::getline(lines, line)) {
    const bool is_timed =
        line.find("\"coll_perf\"") != std::string::npos && line.find("time_us\":0") == std::string::npos;
    if (!is_timed) continue;
    const std::string with_id = replaced(replaced(line, "0x7f8c496ae9f661", "0x2"), "\"unknown\"", name);
    out += replaced(replaced(with_id, "\"nnodes\":1", nodes), "exec_time_us\":", "exec_time_us\":2") + "\n";
  }
  return out;
}

TEST(Inspector, CommunicatorsOfEqualSizeAreRowsOfTheirOwn) {
  const std::string log = log_file("nccl_inspector.jsonl");
  const auto alone = read(log);
  const auto problems = [](const Reading& reading) {
    std::vector<std::string> out;
    for (const auto& p : reading.run.points) out.push_back(text(p, Factor::problem));
    return out;
  };
  EXPECT_THAT(problems(alone), ElementsAre("null", "null", "null"));
  const auto named = read(with_second_communicator(log, "\"tensor\"", "\"nnodes\":1"));
  EXPECT_THAT(problems(named), ElementsAre("group=tensor", "group=unknown", "group=tensor", "group=unknown",
                                           "group=tensor", "group=unknown"));
  const auto nameless = read(with_second_communicator(log, "\"unknown\"", "\"nnodes\":1"));
  ASSERT_EQ(nameless.run.points.size(), 6u);
  EXPECT_EQ(text(nameless.run.points[0], Factor::problem), "group=0x2");
  EXPECT_EQ(text(nameless.run.points[1], Factor::problem), "group=0x7f8c496ae9f661");
  for (std::size_t i = 0; i < 3; ++i)
    EXPECT_EQ(nameless.run.points[2 * i + 1].raw_times_s, alone.run.points[i].raw_times_s);
  // Their number of nodes tells them apart already.
  const auto wide = read(with_second_communicator(log, "\"unknown\"", "\"nnodes\":2"));
  ASSERT_EQ(wide.run.points.size(), 6u);
  for (const auto& p : wide.run.points) EXPECT_EQ(text(p, Factor::problem), "null");
  EXPECT_EQ(text(wide.run.points[0], Factor::nodes), "1");
  EXPECT_EQ(text(wide.run.points[1], Factor::nodes), "2");
  EXPECT_EQ(wide.run.info.nodes, 2);
}

TEST(Inspector, ALineThatWasCutIsLeftOutAndSaid) {
  const std::string log = log_file("nccl_inspector.jsonl");
  const auto cut = read(log.substr(0, log.find("ReduceScatter")));
  EXPECT_EQ(cut.run.points.size(), 1u);
  EXPECT_EQ(cut.faults, "left out: line 13, the last row, which is cut");
  EXPECT_EQ(read(log).faults, "left out: 1 row whose time or rate is 0 or less");
}

TEST(Inspector, ACallWhoseRatesAreNotThoseOfItsTimeIsMistrusted) {
  const auto log = read(replaced(log_file("nccl_inspector.jsonl"), "exec_time_us\":410", "exec_time_us\":41"));
  EXPECT_EQ(log.run.points[1].status, core::Status::mistrusted);
  EXPECT_THAT(log.run.points[1].reason, HasSubstr("64 MiB in 41.0 µs are"));
  EXPECT_THAT(log.faults, HasSubstr("mistrusted: 1 row whose columns contradict each other"));
  EXPECT_EQ(log.run.points[0].status, core::Status::ok);
}

TEST(Inspector, ABadLineIsNamed) {
  const std::string log = log_file("nccl_inspector.jsonl");
  EXPECT_EQ(read(log.substr(0, log.find("ReduceScatter")) + "\n").faults,
            "left out: line 13, the last row, which is cut");
  EXPECT_THAT(read(replaced(log, "\"n_ranks\":4", "\"n_ranks\":-4")).faults,
              HasSubstr("1 row that cannot be read (line 1: 'header.n_ranks' is no count)"));
  EXPECT_THAT(read(replaced(log, "\"coll_sn\":0", "\"coll_sn\":\"0\"")).faults,
              HasSubstr("line 1: 'coll_perf.coll_sn'"));
  EXPECT_THAT(read(replaced(log, "_size_bytes\":1048576", "_size_bytes\":9223372036854775807")).faults,
              HasSubstr("line 13: '9223372036854775807' is no size"));
  EXPECT_THAT(read(replaced(log, "\"id\":\"0x7f8c496ae9f661\"", "\"id\":" + std::string(5000, '['))).faults,
              HasSubstr("line 1:"));
}

}  // namespace
}  // namespace gradmeter::importers
