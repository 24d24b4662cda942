// SPDX-License-Identifier: Apache-2.0
#include "predict/measurements.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "core/error.hpp"

namespace gradmeter::predict {
namespace {

using ::testing::HasSubstr;

const std::string head = "id,system,gpu,gpus,model,seq_len,global_batch,micro_batch,metric,value,unit,zero_stage\n";

MeasuredStep only_row(const std::string& row) { return read_measured_steps(head + row, "t.csv").at(0); }

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
  EXPECT_EQ(s.zero, 3);
}

TEST(MeasuredSteps, WhatCannotBeReadIsTheRowsProblem) {
  EXPECT_THAT(only_row("a,s,A100,8,gpt,1024,64,128 (FP32) / 256,step time,1,s,\n").problem,
              HasSubstr("column micro_batch: '128 (FP32) / 256' is no number"));
  EXPECT_THAT(only_row("a,s,A100,8,gpt,1024,64,1,throughput,-3,tokens/s,\n").problem, HasSubstr("column value"));
  EXPECT_THAT(only_row("a,s,A100,8,gpt,1024,64,1,latency,3,s,\n").problem, HasSubstr("metric 'latency'"));
  EXPECT_THAT(only_row("a,s,A100,8,gpt,1024,64,1,throughput,3,furlongs,\n").problem, HasSubstr("unit 'furlongs'"));
  EXPECT_THAT(only_row("a,s,A100,8,gpt,,64,1,throughput,3,tokens/s,\n").problem, HasSubstr("length of a sequence"));
  EXPECT_THAT(only_row("a,s,A100,,gpt,1,64,1,step time,3,s,\n").problem, HasSubstr("number of GPUs"));
  EXPECT_EQ(only_row("a,s,A100,,gpt,1,64,1,step time,3,s,\n").step_s, 0);
}

TEST(MeasuredSteps, ATableThatIsNoneIsRefusedWithFileAndLine) {
  EXPECT_THAT(refusal(""), HasSubstr("t.csv:1: an empty table"));
  EXPECT_THAT(refusal("system,gpus\n"), HasSubstr("t.csv:1: column gpu is missing"));
  EXPECT_THAT(refusal(head + "a,s\n"), HasSubstr("t.csv:2: 2 cells where 12 columns are named"));
  EXPECT_THAT(refusal(head + "\"a\n"), HasSubstr("t.csv:2: a quoted cell has no end"));
}

TEST(Devices, AreFoundByTheNamesThatTablesUse) {
  EXPECT_EQ(find_device("a100_80gb"), find_device("A100"));
  EXPECT_EQ(find_device("h100_80gb")->name, "H100 SXM5");
  EXPECT_EQ(find_device("V100-16GB")->name, "V100 SXM2");
  EXPECT_EQ(find_device("K80")->name, "K80");
  EXPECT_EQ(find_device("abacus"), nullptr);
  for (const Device& d : devices()) {
    EXPECT_FALSE(d.source.empty()) << d.name;
    EXPECT_GT(d.peak("fp32") + d.peak("bf16"), 0) << d.name;
  }
  EXPECT_DOUBLE_EQ(find_device("A100")->peak("amp_bf16"), 312e12);
  EXPECT_DOUBLE_EQ(find_device("H100")->peak("fp8"), 1979e12);
  EXPECT_DOUBLE_EQ(find_device("V100")->peak("bf16"), 125e12) << "a GPU without bf16 takes fp16's rate";
}

}  // namespace
}  // namespace gradmeter::predict
