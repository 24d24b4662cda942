// SPDX-License-Identifier: Apache-2.0
// A trace of PyTorch 2.15 over gloo on two ranks, shortened to its longer operators; and one by the format strings of
// pytorch/kineto, libkineto/src/output_json.cpp, with the metadata of NCCL's kernels.
#include <gmock/gmock.h>

#include "core/format.hpp"
#include "importers/support.hpp"
#include "importers/traces.hpp"

namespace gradmeter::importers {
namespace {

using core::Factor;
using core::Metric;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Kineto, StepsOfAGpuHaveTheirParts) {
  const auto log = read(log_file("kineto_nccl.json"));
  ASSERT_EQ(log.run.points.size(), 3u);
  const auto& p = log.run.points[0];
  EXPECT_EQ(p.experiment, "replay");
  EXPECT_EQ(text(p, Factor::device), "cuda");
  EXPECT_EQ(text(p, Factor::ranks), "8");
  EXPECT_EQ(text(p, Factor::problem), "trace:steps=3,calls=7,bytes=12632064");
  EXPECT_NEAR(number(p, Metric::time_s), 10e-3, 1e-8);
  EXPECT_NEAR(number(p, Metric::compute_s), 5.5e-3, 1e-8);  // kernels, not operators
  EXPECT_NEAR(number(p, Metric::comm_s), 3.5e-3, 1e-8);
  EXPECT_NEAR(number(p, Metric::exposed_union_s), 1.5e-3, 1e-8);  // 1 ms of the all-reduce, and the all-gather
  EXPECT_NEAR(number(p, Metric::overlap_s), 2e-3, 1e-8);
  EXPECT_THAT(log.not_stated, HasSubstr("of rank 3 alone"));
  EXPECT_THAT(log.not_stated, HasSubstr("1 collectives are of unknown size"));
}

TEST(Kineto, CollectivesHaveTheirWholeBuffer) {
  const auto points = read(log_file("kineto_nccl.json")).run.points;
  EXPECT_EQ(text(points[1], Factor::collective), "all_gather");
  EXPECT_EQ(text(points[1], Factor::size_bytes), "16384");  // 8192 elements of bf16
  EXPECT_EQ(text(points[1], Factor::dtype), "bf16");
  EXPECT_EQ(text(points[2], Factor::collective), "allreduce");
  EXPECT_EQ(text(points[2], Factor::size_bytes), "4194304");
  EXPECT_EQ(text(points[2], Factor::ranks), "8");
  EXPECT_EQ(points[2].raw_times_s.size(), 3u);
  EXPECT_NEAR(number(points[2], Metric::time_s), 3e-3, 1e-8);
  EXPECT_NEAR(number(points[2], Metric::busbw_bytes_per_s), 1.75 * 4194304 / 3e-3, 1e5);
}

TEST(Kineto, GroupsOfEquallyManyRanksHaveRowsOfTheirOwn) {
  const std::string head = R"({"schemaVersion": 1, "traceEvents": [{"ph": "X", "cat": "user_annotation", )"
                           R"("name": "ProfilerStep#1", "ts": 0, "dur": 1000})";
  const auto problems = [&](const std::vector<std::string>& groups) {
    std::string log = head;
    for (std::size_t i = 0; i < groups.size(); ++i)
      log += fmt::format(R"(, {{"ph": "X", "cat": "kernel", "name": "ncclDevKernel_AllReduce_Sum_f32_RING_LL", )"
                         R"("ts": {}, "dur": {}, "args": {{"Collective name": "allreduce", "In msg nelems": 256, )"
                         R"("Out msg nelems": 256, "Group size": 2, "dtype": "Float"{}}}}})",
                         100 * (i + 1), i + 1, groups[i]);
    std::vector<std::string> out;
    for (const auto& p : read(log + "]}").run.points)
      if (p.experiment == "allreduce") out.push_back(text(p, Factor::problem));
    return out;
  };
  const auto group = [](const char* name, const char* description, const char* ranks) {
    return fmt::format(
        R"(, "Process Group Name": "{}", "Process Group Description": "{}", "Process Group Ranks": "{}")", name,
        description, ranks);
  };
  EXPECT_THAT(problems({group("1", "tp", "[0, 1]"), group("2", "tp", "[0, 2]")}), ElementsAre("group=1", "group=2"));
  EXPECT_THAT(problems({group("1", "tp", "[0, 1]"), group("1", "dp", "[0, 1]")}),
              ElementsAre("group=1/dp", "group=1/tp"));
  EXPECT_THAT(problems({group("", "", "[0, 1]"), group("", "", "[0, 2]")}), ElementsAre("group=0+1", "group=0+2"));
  // What says no group could be of either.
  EXPECT_THAT(problems({group("1", "tp", "[0, 1]"), ""}), ElementsAre("null", "group=1"));
  // Of one group there is nothing to tell apart.
  EXPECT_THAT(problems({group("1", "tp", "[0, 1]"), group("1", "tp", "[0, 1]")}), ElementsAre("null"));
}

TEST(Kineto, ATraceOfGlooIsRead) {
  const auto log = read(log_file("kineto_gloo.json"));
  ASSERT_EQ(log.run.points.size(), 4u);  // and all-reduces of three sizes
  const auto& p = log.run.points[0];
  EXPECT_EQ(text(p, Factor::problem),
            "trace:steps=3,calls=9,bytes=8036484");  // (267786 + 401920 + 1) · 4 bytes, 3 steps
  EXPECT_EQ(text(p, Factor::device), "cpu");
  EXPECT_EQ(text(p, Factor::ranks), "2");
  const double step = number(p, Metric::time_s), compute = number(p, Metric::compute_s);
  EXPECT_GT(compute, 0);
  EXPECT_LT(compute, step);
  EXPECT_GT(number(p, Metric::comm_s), 0);
  EXPECT_EQ(text(log.run.points[1], Factor::size_bytes), "4");
  EXPECT_EQ(text(log.run.points[3], Factor::size_bytes), "1607680");
  EXPECT_EQ(text(log.run.points[3], Factor::ranks), "2");
}

TEST(Kineto, CallsOfAStepCountFromItsBegin) {
  const auto trace = read_kineto_trace(log_file("kineto_nccl.json")).trace;
  ASSERT_EQ(trace.steps.size(), 3u);
  ASSERT_EQ(trace.steps[1].calls.size(), 2u);
  EXPECT_NEAR(trace.steps[1].calls[0].when.begin, 3e-3, 1e-8);
  EXPECT_NEAR(trace.steps[1].calls[0].when.end, 6e-3, 1e-8);
  ASSERT_EQ(trace.steps[1].compute.size(), 2u);
  EXPECT_NEAR(trace.steps[1].compute[1].begin, 6.5e-3, 1e-8);
}

TEST(Kineto, WhatIsNoTraceOfStepsIsRefused) {
  const std::string log = log_file("kineto_nccl.json");
  EXPECT_THAT(refusal(log.substr(0, log.size() / 2)), AllOf(HasSubstr("no whole JSON"), HasSubstr("line ")));
  EXPECT_THAT(refusal(replaced(log, "\"dur\": 4000.000", "\"dur\": 1e999")),
              AllOf(HasSubstr("line "), HasSubstr("1e999 is beyond all numbers")));
  EXPECT_THAT(refusal(replaced(log, "\"dur\": 4000.000", "\"dur\": -4000.000")),
              HasSubstr("event 'sm90_xmma_gemm_f32f32'"));
  EXPECT_THAT(refusal(replaced(log, "\"dur\": 4000.000", "\"dur\": \"x\"")), HasSubstr("has no times"));
  EXPECT_THAT(refusal(R"({"schemaVersion": 1, "traceEvents": []})"), HasSubstr("no ProfilerStep#"));
  EXPECT_THAT(refusal(R"({"traceEvents": 3})"), HasSubstr("no 'traceEvents'"));
}

TEST(Kineto, SizesThatAreNoneCountAsUnknown) {
  for (const char* size : {"-5", "99999999999999999999", "9223372036854775807", "\"many\"", "null"}) {
    const std::string log =
        replaced(log_file("kineto_nccl.json"), "\"In msg nelems\": 1048576,\"Out msg nelems\": 1048576",
                 fmt::format("\"In msg nelems\": {},\"Out msg nelems\": {}", size, size));
    EXPECT_EQ(read_kineto_trace(log).calls_without_size, 2u) << size;
  }
}

}  // namespace
}  // namespace gradmeter::importers
