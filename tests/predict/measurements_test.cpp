// SPDX-License-Identifier: Apache-2.0
#include "predict/measurements.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "core/error.hpp"

namespace gradmeter::predict {
namespace {

using ::testing::HasSubstr;

const std::string precision_head = "id,system,gpu,gpus,model,global_batch,metric,value,unit,precision\n";
const std::string head = "id,system,gpu,gpus,model,seq_len,global_batch,micro_batch,metric,value,unit,zero_stage\n";

TrainingStep only_row(const std::string& row) { return read_measured_steps(head + row, "t.csv").at(0); }

std::string refusal(const std::string& text) {
  try {
    read_measured_steps(text, "t.csv");
  } catch (const core::UsageError& e) {
    return e.what();
  }
  return {};
}

TEST(MeasuredSteps, EveryMetricBecomesTheTimeOfAStep) {
  EXPECT_DOUBLE_EQ(only_row("a,s,A100,8,gpt,1024,64,1,iteration time,250,ms,\n").step_s, 0.25);
  EXPECT_DOUBLE_EQ(only_row("a,s,A100,8,gpt,1024,64,1,step time,2.5,s,\n").step_s, 2.5);
  // 64 sequences of 1,024 tokens by 8 GPUs at 4,096 tokens a second each.
  EXPECT_DOUBLE_EQ(only_row("a,s,A100,8,gpt,1024,64,1,throughput,4096,tokens/s/GPU,\n").step_s, 2);
  EXPECT_DOUBLE_EQ(only_row("a,s,A100,8,gpt,1024,64,1,throughput,32768,tokens/s,\n").step_s, 2);
  EXPECT_DOUBLE_EQ(only_row("a,s,A100,8,r50,,64,1,throughput,32,images/s,\n").step_s, 2);
}

TEST(MeasuredSteps, AQuantileIsKeptApart) {
  const auto s = only_row("a,s,A100,8,gpt,1024,64,1,step time p95,.097,s,\n");
  EXPECT_EQ(s.quantile, "p95");
  EXPECT_DOUBLE_EQ(s.step_s, 0.097);
}

TEST(MeasuredSteps, QuotesHoldCommasAndQuotes) {
  const auto s = only_row("\"a, \"\"b\"\"\",s,A100,8,gpt,1024,64,1,step time,1,s,fsdp 64\r\n");
  EXPECT_EQ(s.id, "a, \"b\"");
  EXPECT_EQ(s.zero_stage, 3);
}

TEST(MeasuredSteps, WhatCannotBeReadIsTheRowsProblem) {
  EXPECT_THAT(only_row("a,s,A100,8,gpt,1024,64,128 (FP32) / 256,step time,1,s,\n").problem,
              HasSubstr("'128 (FP32) / 256' is no number for micro_batch"));
  EXPECT_THAT(only_row("a,s,A100,8,gpt,1024,64,1,throughput,-3,tokens/s,\n").problem,
              HasSubstr("'-3' is below 0 for value"));
  EXPECT_THAT(only_row("a,s,A100,8,gpt,1024,64,1,latency,3,s,\n").problem, HasSubstr("metric 'latency'"));
  EXPECT_THAT(only_row("a,s,A100,8,gpt,1024,64,1,throughput,3,furlongs,\n").problem, HasSubstr("unit 'furlongs'"));
  EXPECT_THAT(only_row("a,s,A100,8,gpt,,64,1,throughput,3,tokens/s,\n").problem, HasSubstr("length of a sequence"));
  EXPECT_THAT(only_row("a,s,A100,,gpt,1,64,1,step time,3,s,\n").problem, HasSubstr("number of GPUs"));
  EXPECT_EQ(only_row("a,s,A100,,gpt,1,64,1,step time,3,s,\n").step_s, 0);
}

TEST(MeasuredSteps, ATableThatIsNoneIsRefusedWithFileAndLine) {
  EXPECT_THAT(refusal(""), HasSubstr("t.csv:1: an empty table"));
  EXPECT_THAT(refusal("system,gpus\n"), HasSubstr("t.csv:1:1: column gpu is missing"));
  EXPECT_THAT(refusal(head + "a,s\n"), HasSubstr("t.csv:2:4: 2 values, not 12: 'gpu' is missing"));
  EXPECT_THAT(refusal(head + "\"a\n"), HasSubstr("t.csv:2:1: a quote that does not end"));
}

TEST(MeasuredSteps, AByteOrderMarkIsSkipped) {
  EXPECT_EQ(read_measured_steps("\xef\xbb\xbf" + head + "a,s,A100,8,gpt,1024,64,1,step time,1,s,\n", "t.csv").size(),
            1u);
}

TEST(MeasuredSteps, AThroughputIsOfTheGpusThatItsUnitNames) {
  const auto row = [](const std::string& unit) {
    return only_row("a,s,A100,8,gpt,1024,64,1,throughput,4096," + unit + ",\n");
  };
  EXPECT_DOUBLE_EQ(row("tokens/s/gpu").step_s, 2);
  EXPECT_DOUBLE_EQ(row("Tokens/s/GPU").step_s, 2);
  EXPECT_THAT(row("tokens/s/node").problem, HasSubstr("unit 'tokens/s/node' of a throughput is not known"));
  EXPECT_THAT(row("samples/s/node").problem, HasSubstr("unit 'samples/s/node'"));
}

TEST(MeasuredSteps, StagesOfZeroAreReadAsTheyAreWritten) {
  const auto row = [](const std::string& stage) {
    return only_row("a,s,A100,8,gpt,1024,64,1,step time,1,s," + stage + "\n");
  };
  for (const char* three : {"3", "3.0", "fsdp", "FSDP", "ZeRO-3", "zero 3", "stage 3", "ZeRO stage 3"})
    EXPECT_EQ(row(three).zero_stage, 3) << three;
  EXPECT_EQ(row("ZeRO-1").zero_stage, 1);
  EXPECT_EQ(row("").zero_stage, 0);
  EXPECT_EQ(row("").problem, "");
  for (const char* wrong : {"4", "13", "some"})
    EXPECT_THAT(row(wrong).problem, HasSubstr("is no stage of ZeRO for zero_stage")) << wrong;
}

TEST(MeasuredSteps, PrecisionsAreReadInAnyCase) {
  const auto row = [](const std::string& precision) {
    return read_measured_steps(precision_head + "a,s,A100,8,gpt,64,step time,1,s," + precision + "\n", "t.csv").at(0);
  };
  EXPECT_EQ(row("FP32").precision, "fp32");
  EXPECT_EQ(row("MXFP8").problem, "");
  EXPECT_EQ(row("").problem, "");
  EXPECT_THAT(row("posit16").problem, HasSubstr("'posit16' is no known precision"));
  EXPECT_THAT(row("posit16").unread_reason, HasSubstr("posit16")) << "so that it is not predicted as bf16";
}

TEST(MeasuredSteps, MoreGpusThanThereCanBeAreTheRowsProblem) {
  EXPECT_THAT(only_row("a,s,A100,4294967298,gpt,1,64,1,step time,3,s,\n").problem, HasSubstr("4294967298"));
}

}  // namespace
}  // namespace gradmeter::predict
