// SPDX-License-Identifier: Apache-2.0
#include "predict/step.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "predict/machines.hpp"
#include "predict/scaled_step.hpp"
#include "predict/score.hpp"

namespace gradmeter::predict {
namespace {

using ::testing::HasSubstr;

TrainingStep gpt(std::size_t gpus = 1) {
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

core::Machine machine_for(const TrainingStep& s) { return machine_of(s).machine.value(); }

StepParts parts_of(const TrainingStep& s) {
  const core::Machine m = machine_for(s);
  return TransformerStep(s, m).parts(terms_of(m, s));
}

TEST(TransformerStep, CountsTheOperationsOfSixAParameterAndToken) {
  const TrainingStep s = gpt();
  const double h = 4096, tokens = 8 * 2048, parameters = 24 * 12 * h * h + 50257 * h;
  EXPECT_NEAR(TransformerStep(s, machine_for(s)).flops(), 6 * tokens * parameters + 12 * 24 * h * 2048 * tokens, 1e9);
}

TEST(TransformerStep, IsNoShorterThanItsOperationsAtThePeak) {
  const TrainingStep s = gpt();
  EXPECT_GT(parts_of(s).step(), TransformerStep(s, machine_for(s)).flops() / 312e12);
}

TEST(TransformerStep, TwiceTheMicroBatchesTakeTwiceTheComputation) {
  TrainingStep s = gpt();
  const double once = parts_of(s).compute;
  s.global_batch *= 2;
  EXPECT_NEAR(parts_of(s).compute, 2 * once, 1e-9 * once);
}

TEST(TransformerStep, RecomputationAddsAForwardPass) {
  TrainingStep s = gpt();
  const double without = parts_of(s).compute;
  s.recompute = "full";
  EXPECT_GT(parts_of(s).compute, 1.25 * without);
  EXPECT_LT(parts_of(s).compute, 1.4 * without);
}

// Narayanan et al., SC 2021: (p − 1) of m micro-batches, divided by the virtual stages.
TEST(TransformerStep, APipelineWaitsForItsFillingAndDraining) {
  TrainingStep s = gpt(4);
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
  TrainingStep s = gpt(8);
  s.tensor = 8;
  EXPECT_GT(parts_of(s).tensor_exchange, 0);
  EXPECT_LT(parts_of(s).compute, 8 * parts_of(gpt(8)).compute);
}

TEST(TransformerStep, MoreNodesExchangeLonger) {
  TrainingStep one = gpt(8), many = gpt(64);
  one.strategy = many.strategy = "no gradient bucket";
  EXPECT_GT(parts_of(one).data_exchange, 0);
  EXPECT_GT(parts_of(many).data_exchange, 1.2 * parts_of(one).data_exchange);
}

TEST(TransformerStep, ShardsOfZeroShareTheUpdate) {
  TrainingStep s = gpt(8);
  const double whole = parts_of(s).update;
  s.zero_stage = 1;
  EXPECT_NEAR(parts_of(s).update, whole / 8, 1e-12);
}

TEST(TransformerStep, NamesWhatItCannotPredict) {
  TrainingStep s = gpt();
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
  EXPECT_NE(machine_of(s).reason, "");
}

TEST(TransformerStep, SmallGroupsOfAMeshAreAsSlowAsMeasured) {
  TrainingStep s = gpt(8);
  s.strategy = "no gradient bucket";
  core::Machine m = machine_for(s);
  m.within_node.groups = {{2, 25e9}, {8, 100e9}};
  const auto exchange = [&](std::size_t gpus) {
    s.gpus = gpus;
    s.global_batch = 8 * gpus;
    return TransformerStep(s, m).parts(terms_of(m, s)).data_exchange;
  };
  // A ring of two sends 2 · (1 / 2) of the bytes at a quarter of the rate, one of eight 2 · (7 / 8).
  EXPECT_NEAR(exchange(2) / exchange(8), 4 * 1.0 / 1.75, 0.05);
}

TEST(TransformerStep, FewerBitsOnTheWireTakeLessTimeAndCodingAdds) {
  TrainingStep s = gpt(64);
  s.strategy = "no gradient bucket";
  const double plain = parts_of(s).data_exchange;
  s.gradient_bits = 4;
  const double coded = parts_of(s).data_exchange;
  EXPECT_NEAR(coded / plain, 0.25, 0.02);
  s.coding_passes = 2;
  EXPECT_GT(parts_of(s).data_exchange, coded);
}

// Korthikanti et al. 2022, table 2: bytes of a layer's activations, in units of s·b·h.
TEST(Memory, ActivationsAreThePapers) {
  TrainingStep s = gpt(8);
  s.layers = 1;
  s.vocabulary = 1;
  s.attention = "plain";
  s.global_batch = 1;
  const double sbh = 2048.0 * 4096, scores = 5.0 * 32 * 2048 / 4096;
  const auto of_layer = [&] {
    TrainingStep two = s;
    two.layers = 2;
    const core::Machine m = machine_for(s);
    return (TransformerStep(two, m).memory().activations - TransformerStep(s, m).memory().activations) / sbh;
  };
  EXPECT_NEAR(of_layer(), 34 + scores, 1e-9);
  s.tensor = 8;
  EXPECT_NEAR(of_layer(), 10 + 24.0 / 8 + scores / 8, 1e-9);
  s.is_sequence_parallel = true;
  EXPECT_NEAR(of_layer(), 34.0 / 8 + scores / 8, 1e-9);
  s.recompute = "selective";
  EXPECT_NEAR(of_layer(), 34.0 / 8, 1e-9);
  s.recompute = "none";
  s.attention = "flash";
  EXPECT_NEAR(of_layer(), 34.0 / 8, 1e-9) << "flash attention keeps no scores";
  s.recompute = "full";
  s.is_sequence_parallel = false;
  EXPECT_NEAR(of_layer(), 2, 1e-9);
}

// Rajbhandari et al., SC 2020, figure 1: 7.5 billion parameters on 64 ranks need 120, 31.4, 16.6 and 1.9 GB.
TEST(Memory, StagesOfZeroShareWhatThePaperSays) {
  TrainingStep s = gpt(64);
  s.vocabulary = 1;
  const core::Machine m = machine_for(s);
  const auto state = [&](int zero_stage) {
    s.zero_stage = zero_stage;
    const MemoryParts p = TransformerStep(s, m).memory();
    return (p.weights + p.gradients + p.optimizer) / TransformerStep(s, m).parameters() * 7.5;
  };
  EXPECT_NEAR(state(0), 120, 0.1);
  EXPECT_NEAR(state(1), 31.4, 0.1);
  EXPECT_NEAR(state(2), 16.6, 0.1);
  // Beside the paper's 1.9 GB, two of the 24 layers are whole: 2 bytes · 2 / 24 of all parameters.
  EXPECT_NEAR(state(3), 1.9 + 7.5 * 2 * 2 / 24, 0.1);
}

TEST(Memory, TheFirstStageKeepsAsManyMicroBatchesAsThereAreStages) {
  TrainingStep s = gpt(8);
  s.attention = "flash";
  s.vocabulary = 1;
  const core::Machine m = machine_for(s);
  const double whole = TransformerStep(s, m).memory().activations;
  s.pipeline = 8;
  s.global_batch = 64;
  EXPECT_NEAR(TransformerStep(s, m).memory().activations / whole, 1, 0.01) << "an eighth of the layers, eight times";
  s.global_batch = 2;
  EXPECT_NEAR(TransformerStep(s, m).memory().activations / whole, 0.25, 0.01) << "two micro-batches are all";
}

TEST(ScaledStep, GrowsFromTheStepOfOneGpu) {
  TrainingStep one = gpt(1), many = gpt(8);
  for (TrainingStep* s : {&one, &many}) s->layers = 0, s->parameters = 25.6e6, s->global_batch = 64 * s->gpus;
  one.step_s = 0.2;
  const core::Machine sheet = machine_for(many);
  const std::vector<TrainingStep> known{one};
  const auto scaled = scaled_step(many, known, sheet);
  ASSERT_TRUE(scaled.seconds);
  EXPECT_GT(*scaled.seconds, one.step_s);
  EXPECT_LT(*scaled.seconds, 1.1 * one.step_s);
  many.strategy = "parameter_server cpu";
  EXPECT_GT(*scaled_step(many, known, sheet).seconds, *scaled.seconds) << "servers on the host are slower than a ring";
  many.global_batch = 999;
  EXPECT_NE(scaled_step(many, known, sheet).reason, "") << "another batch a GPU is another step";
}

TEST(TransformerStep, ZeroThreeIsNotPredictedWithAPipeline) {
  TrainingStep s = gpt(8);
  s.zero_stage = 3;
  EXPECT_EQ(TransformerStep::refusal(s), "");
  s.pipeline = 4;
  EXPECT_THAT(TransformerStep::refusal(s), HasSubstr("ZeRO stage 3 is not predicted with a pipeline"));
  EXPECT_EQ(Calibration({}).predict(s).reason, TransformerStep::refusal(s));
}

TEST(TransformerStep, ZeroThreeUpdatesTheLayersOfATensorRankOnly) {
  TrainingStep s = gpt(8);
  s.tensor = 8;
  const double alone = parts_of(s).update;
  s.zero_stage = 3;
  EXPECT_NEAR(parts_of(s).update / alone, 1, 1e-9) << "with one data rank, nothing is shared";
}

TEST(TransformerStep, CodingTakesTimeWithZeroThreeToo) {
  TrainingStep s = gpt(8);
  s.zero_stage = 3;
  const double plain = parts_of(s).data_exchange;
  s.coding_passes = 2;
  EXPECT_GT(parts_of(s).data_exchange, plain);
}

TEST(TransformerStep, ACodecOfGradientsLeavesTheWeightsThatZeroGathersAsTheyAre) {
  TrainingStep s = gpt(64);
  s.strategy = "no gradient bucket";
  s.zero_stage = 1;
  const double plain = parts_of(s).data_exchange;
  s.gradient_bits = 4;
  // Gradients go out in 4 of 16 bits, weights come back in 16.
  EXPECT_NEAR(parts_of(s).data_exchange / plain, (0.25 + 1) / 2, 0.02);
}

TEST(TransformerStep, ABatchThatLeavesReplicasIdleIsRefused) {
  TrainingStep s = gpt(8);
  s.global_batch = 7;
  EXPECT_THAT(TransformerStep::refusal(s),
              HasSubstr("a global batch of 7 is less than a micro-batch of 1 on each of 8"));
  s.global_batch = 8;
  EXPECT_EQ(TransformerStep::refusal(s), "");
  s.micro_batch = 2;
  EXPECT_NE(TransformerStep::refusal(s), "");
}

TEST(TransformerStep, PaddingIsNoOperationOfTheNetwork) {
  TrainingStep s = gpt(8);
  s.global_batch = 9;
  const double nine = TransformerStep(s, machine_for(s)).flops();
  s.global_batch = 18;
  EXPECT_NEAR(TransformerStep(s, machine_for(s)).flops() / nine, 2, 1e-9);
}

TEST(TransformerStep, AMeshWhoseProductOverflowsIsRefused) {
  TrainingStep s = gpt(8);
  s.tensor = s.pipeline = std::size_t{1} << 24;
  s.context = 65536;
  EXPECT_THAT(TransformerStep::refusal(s), HasSubstr("the mesh needs more GPUs"));
  s.tensor = s.pipeline = std::size_t{1} << 32;
  s.context = 1;
  EXPECT_THAT(TransformerStep::refusal(s), HasSubstr("the mesh needs more GPUs"));
}

/// Steps of one network, which take `slower` times as long as the data sheet says.
std::vector<TrainingStep> measured_steps(double slower) {
  std::vector<TrainingStep> rows;
  for (const std::size_t gpus : {16u, 32u, 64u}) {
    TrainingStep s = gpt(gpus);
    s.id = std::to_string(gpus);
    s.step_s = slower * parts_of(s).step();
    rows.push_back(s);
  }
  return rows;
}

TEST(Calibration, WhatLikeRowsSayDoesNotHideAnotherLink) {
  const auto rows = measured_steps(1.5);
  const Calibration calibration(rows);
  const TrainingStep& s = rows.back();
  const core::Machine fitted = calibration.machine(s);
  core::Machine slow = fitted;
  connect(slow, "--link", "1GbE");
  const auto by_terms = [&](const core::Machine& m) { return TransformerStep(s, m).seconds(terms_of(m, s)); };
  const double expected = by_terms(slow) / by_terms(fitted);
  ASSERT_GT(expected, 2);
  EXPECT_NEAR(calibration.predict(s, slow).prediction.value().seconds /
                  calibration.predict(s, fitted).prediction.value().seconds,
              expected, 1e-6 * expected);
}

TEST(Calibration, RowsOfAnotherGpuAreNotFitted) {
  auto rows = measured_steps(1.5);
  const TrainingStep asked = rows.back();
  const double without = Calibration(rows).predict(asked).prediction.value().seconds;
  auto others = measured_steps(0.2);
  for (TrainingStep& s : others) s.gpu = "H100", rows.insert(rows.begin(), s);
  EXPECT_DOUBLE_EQ(Calibration(rows).predict(asked).prediction.value().seconds, without);
  EXPECT_EQ(Calibration(rows).machine(asked).fit->rows, 3u);
}

TEST(Calibration, OtherQuantilesAreNotFitted) {
  auto rows = measured_steps(1.5);
  TrainingStep asked = rows.back();
  const double without = Calibration(rows).predict(asked).prediction.value().seconds;
  auto slowest = measured_steps(6);
  for (TrainingStep& s : slowest) s.quantile = "p99", rows.insert(rows.begin(), s);
  const Calibration calibration(rows);
  EXPECT_DOUBLE_EQ(calibration.predict(asked).prediction.value().seconds, without);
  EXPECT_EQ(calibration.seconds_at_constant_flops(asked),
            Calibration(measured_steps(1.5)).seconds_at_constant_flops(asked));
  asked.quantile = "p99";
  EXPECT_THAT(calibration.predict(asked).reason, HasSubstr("the quantile p99"));
}

}  // namespace
}  // namespace gradmeter::predict
