// SPDX-License-Identifier: Apache-2.0
#include "predict/step.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "predict/scaled_step.hpp"

namespace gradmeter::predict {
namespace {

MeasuredStep gpt(std::size_t gpus = 1) {
  return {.id = "a",
          .system = "s",
          .gpu = "A100",
          .model = "gpt",
          .precision = "bf16",
          .recompute = "none",
          .strategy = "",
          .data = "",
          .note = "",
          .gpus_per_node = 8,
          .gpus = gpus,
          .layers = 24,
          .hidden = 4096,
          .heads = 32,
          .sequence = 2048,
          .vocabulary = 50257,
          .global_batch = 8 * gpus,
          .micro_batch = 1};
}

StepParts parts_of(const MeasuredStep& s) {
  const Sheet sheet = sheet_of(s).sheet.value();
  Terms t;
  const auto priors = priors_of(sheet);
  for (std::size_t i = 0; i < term_count; ++i) t.values[i] = priors[i].middle;
  return TransformerStep(s, sheet).parts(t);
}

TEST(TransformerStep, CountsTheOperationsOfSixAParameterAndToken) {
  const MeasuredStep s = gpt();
  const double h = 4096, tokens = 8 * 2048, parameters = 24 * 12 * h * h + 50257 * h;
  EXPECT_NEAR(TransformerStep(s, *sheet_of(s).sheet).flops(), 6 * tokens * parameters + 12 * 24 * h * 2048 * tokens,
              1e9);
}

TEST(TransformerStep, IsNoShorterThanItsOperationsAtThePeak) {
  const MeasuredStep s = gpt();
  EXPECT_GT(parts_of(s).step(), TransformerStep(s, *sheet_of(s).sheet).flops() / 312e12);
}

TEST(TransformerStep, TwiceTheMicroBatchesTakeTwiceTheComputation) {
  MeasuredStep s = gpt();
  const double once = parts_of(s).compute;
  s.global_batch *= 2;
  EXPECT_NEAR(parts_of(s).compute, 2 * once, 1e-9 * once);
}

TEST(TransformerStep, RecomputationAddsAForwardPass) {
  MeasuredStep s = gpt();
  const double without = parts_of(s).compute;
  s.recompute = "full";
  EXPECT_GT(parts_of(s).compute, 1.25 * without);
  EXPECT_LT(parts_of(s).compute, 1.4 * without);
}

// Narayanan et al., SC 2021: (p − 1) of m micro-batches, divided by the virtual stages.
TEST(TransformerStep, APipelineWaitsForItsFillingAndDraining) {
  MeasuredStep s = gpt(4);
  s.pipeline = 4;
  s.global_batch = 32;
  const StepParts p = parts_of(s);
  const double bubble = p.pipeline_wait / p.compute;
  EXPECT_NEAR(bubble, 3.0 / 32, 0.03);
  s.virtual_stages = 2;
  EXPECT_NEAR(parts_of(s).pipeline_wait, p.pipeline_wait / 2, 1e-9);
}

TEST(TransformerStep, OnlySplitLayersExchangeInAPass) {
  EXPECT_EQ(parts_of(gpt(8)).tensor_exchange, 0);
  MeasuredStep s = gpt(8);
  s.tensor = 8;
  EXPECT_GT(parts_of(s).tensor_exchange, 0);
  EXPECT_LT(parts_of(s).compute, 8 * parts_of(gpt(8)).compute);
}

TEST(TransformerStep, MoreNodesExchangeLonger) {
  MeasuredStep one = gpt(8), many = gpt(64);
  one.strategy = many.strategy = "no gradient bucket";
  EXPECT_GT(parts_of(one).data_exchange, 0);
  EXPECT_GT(parts_of(many).data_exchange, 1.2 * parts_of(one).data_exchange);
}

TEST(TransformerStep, ShardsOfZeroShareTheUpdate) {
  MeasuredStep s = gpt(8);
  const double whole = parts_of(s).update;
  s.zero = 1;
  EXPECT_NEAR(parts_of(s).update, whole / 8, 1e-12);
}

TEST(TransformerStep, NamesWhatItCannotPredict) {
  MeasuredStep s = gpt();
  s.expert = 8;
  EXPECT_EQ(TransformerStep::refusal(s), "experts");
  s = gpt();
  s.layers = 0;
  EXPECT_NE(TransformerStep::refusal(s), "");
  s = gpt(4);
  s.tensor = 8;
  EXPECT_NE(TransformerStep::refusal(s), "") << "a mesh of more GPUs than there are";
  s = gpt();
  s.model = "LLAMA3_8B";
  s.layers = s.hidden = 0;
  EXPECT_EQ(TransformerStep::refusal(s), "") << "the name says the shape";
  s.gpu = "abacus";
  EXPECT_NE(sheet_of(s).reason, "");
}

TEST(ScaledStep, GrowsFromTheStepOfOneGpu) {
  MeasuredStep one = gpt(1), many = gpt(8);
  for (MeasuredStep* s : {&one, &many}) s->layers = 0, s->parameters = 25.6e6, s->global_batch = 64 * s->gpus;
  one.step_s = 0.2;
  const Sheet sheet = *sheet_of(many).sheet;
  const std::vector<MeasuredStep> known{one};
  const auto scaled = scaled_step(many, known, sheet);
  ASSERT_TRUE(scaled.seconds);
  EXPECT_GT(*scaled.seconds, one.step_s);
  EXPECT_LT(*scaled.seconds, 1.1 * one.step_s);
  many.strategy = "parameter_server cpu";
  EXPECT_GT(*scaled_step(many, known, sheet).seconds, *scaled.seconds) << "servers on the host are slower than a ring";
  many.global_batch = 999;
  EXPECT_NE(scaled_step(many, known, sheet).reason, "") << "another batch a GPU is another step";
}

}  // namespace
}  // namespace gradmeter::predict
