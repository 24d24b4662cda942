// SPDX-License-Identifier: Apache-2.0
#include "predict/layer_step.hpp"

#include <gtest/gtest.h>

#include "predict/machines.hpp"
#include "predict/score.hpp"

namespace gradmeter::predict {
namespace {

const core::Machine& p100() {
  static const core::Machine m = machine_of(*find_device("P100"), 8);
  return m;
}

TEST(LayerTables, AreFoundByTheNamesThatPeopleWrite) {
  EXPECT_EQ(find_layer_table("ResNet50")->name, "resnet50");
  EXPECT_EQ(find_layer_table("resnet50v1.5")->name, "resnet50");
  EXPECT_EQ(find_layer_table("InceptionV3")->name, "inception_v3");
  EXPECT_FALSE(find_layer_table("resnext"));
}

TEST(LayerStep, CountsTheOperationsOfThreePasses) {
  const auto table = *find_layer_table("resnet50");
  const LayerStep step = layer_step(table, 64, "fp32", p100());
  // Backward has two products for each of the forward pass, but the first layer's input needs no gradient.
  EXPECT_NEAR(step.flops / (3 * 64 * table.forward_flops()), 1, 0.03);
  EXPECT_GT(step.compute_s, step.flops / 10.6e12) << "no shorter than its operations at the peak";
  EXPECT_LT(step.memory_s, step.compute_s);
}

TEST(LayerStep, GrowsWithSamplesAndShrinksWithThePeak) {
  const auto table = *find_layer_table("resnet50");
  const double one = layer_step(table, 32, "fp32", p100()).compute_s;
  EXPECT_NEAR(layer_step(table, 64, "fp32", p100()).compute_s / one, 2, 0.1);
  core::Machine fast = p100();
  fast.device->peaks["fp32"] *= 2;
  fast.device->memory_bytes_per_s *= 2;
  EXPECT_LT(layer_step(table, 32, "fp32", fast).compute_s, 0.65 * one);
}

TEST(LayerStep, ANetworkWithoutMeasuredStepsIsPredictedFromItsLayers) {
  TrainingStep s;
  s.gpu = "P100";
  s.model = "ResNet50";
  s.precision = "fp32";
  s.gpus_per_node = 8;
  s.gpus = 16;
  s.global_batch = 64 * 16;
  const auto by_layers = Calibration({}).predict(s).prediction.value();
  EXPECT_EQ(by_layers.basis, Basis::layer_costs);
  EXPECT_GT(by_layers.parts.data_exchange, 0);
  EXPECT_NEAR(by_layers.parts.step(), by_layers.seconds, 1e-9);
  EXPECT_GT(by_layers.high / by_layers.low, 4) << "such sums are a third to a half away";
  EXPECT_GT(by_layers.memory.total(), 3 * 4 * 25e6);

  TrainingStep one = s;
  one.gpus = 1;
  one.global_batch = 64;
  one.parameters = 25.6e6;
  one.step_s = 0.3;
  const auto by_row = Calibration({one}).predict(s).prediction.value();
  EXPECT_EQ(by_row.basis, Basis::measured_step) << "a measured step of one GPU is preferred";
  EXPECT_LT(by_row.high / by_row.low, 2);
}

TrainingStep resnet(const std::string& gpu, std::size_t gpus, std::size_t global_batch) {
  TrainingStep s;
  s.gpu = gpu;
  s.model = "ResNet50";
  s.precision = "fp32";
  s.gpus_per_node = 8;
  s.gpus = gpus;
  s.global_batch = global_batch;
  s.parameters = 25.6e6;
  return s;
}

TEST(LayerStep, TheRankWithTheMostSamplesSetsTheTime) {
  const auto full = Calibration({}).predict(resnet("P100", 16, 32)).prediction.value(),
             partial = Calibration({}).predict(resnet("P100", 16, 24)).prediction.value();
  EXPECT_DOUBLE_EQ(partial.parts.compute, full.parts.compute);
  EXPECT_NEAR(partial.flops / full.flops, 24.0 / 32, 1e-9);
}

TEST(LayerStep, AMeasuredStepOfAnotherGpuIsNoBase) {
  TrainingStep measured = resnet("P100", 1, 64);
  measured.step_s = 0.3;
  const Calibration calibration({measured});
  EXPECT_EQ(calibration.predict(resnet("P100", 8, 512)).prediction.value().basis, Basis::measured_step);
  EXPECT_EQ(calibration.predict(resnet("V100", 8, 512)).prediction.value().basis, Basis::layer_costs);
}

TEST(LayerStep, AMeasuredStepSaysNothingOfAnotherExchangeOnAsManyGpus) {
  TrainingStep measured = resnet("P100", 16, 1024), asked = measured;
  measured.step_s = 0.3;
  const Calibration calibration({measured});
  const auto plain = calibration.predict(asked).prediction.value();
  EXPECT_EQ(plain.seconds, 0.3);
  EXPECT_EQ(plain.largest_part, "the measured step of 16 GPUs");
  asked.exchange.bucket_bytes = 0;
  EXPECT_EQ(calibration.predict(asked).prediction.value().basis, Basis::layer_costs);
  asked.exchange = {};
  asked.gradient_bits = 4;
  EXPECT_EQ(calibration.predict(asked).prediction.value().basis, Basis::layer_costs);
}

}  // namespace
}  // namespace gradmeter::predict
