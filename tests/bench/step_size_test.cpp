// SPDX-License-Identifier: Apache-2.0
#include "bench/train/step_size.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "core/error.hpp"

namespace gradmeter::bench {
namespace {

using ::testing::HasSubstr;

constexpr std::size_t epoch = 10, run = 40;
float at(std::string_view rule, std::size_t step, std::size_t batch = 256, double warmup = 1) {
  return StepSizeRule(rule).at({.step = step, .epoch_steps = epoch, .steps = run, .batch = batch}, 0.1, warmup);
}
std::string refusal(std::string_view rule) {
  try {
    (void)StepSizeRule(rule);
  } catch (const core::UsageError& e) {
    return e.what();
  }
  return "accepted";
}

TEST(StepSize, ConstantGrowsFromZeroOverTheWarmUpAndStays) {
  for (std::size_t s = 0; s < epoch; ++s) EXPECT_FLOAT_EQ(at("constant", s), 0.1f * static_cast<float>(s + 1) / 10);
  for (const std::size_t s : {epoch, run - 1}) EXPECT_FLOAT_EQ(at("constant", s), 0.1f);
  for (const std::size_t s : {std::size_t{0}, run - 1}) EXPECT_FLOAT_EQ(at("constant", s, 256, 0), 0.1f);
}

TEST(StepSize, ScalesWithTheGlobalBatch) {
  EXPECT_FLOAT_EQ(at("linear:batch=64", 20, 256), 0.4f);
  EXPECT_FLOAT_EQ(at("linear:batch=128", 20, 256), 0.2f);
  EXPECT_FLOAT_EQ(at("sqrt:batch=64", 20, 256), 0.2f);
  for (const auto* rule : {"linear", "sqrt"}) EXPECT_FLOAT_EQ(at(rule, 20, 64), 0.1f);
  EXPECT_FLOAT_EQ(at("constant", 20, 64), at("constant", 20, 256));  // the control: what does not scale
}

// The gradual warm-up: at the usual step for the reference batch, then linearly up to the scaled one.
TEST(StepSize, AScaledStepWarmsUpFromTheUnscaled) {
  EXPECT_FLOAT_EQ(at("linear", 0), 0.1f + 0.3f / 10);
  for (std::size_t s = 1; s < epoch; ++s) EXPECT_NEAR(at("linear", s) - at("linear", s - 1), 0.03, 1e-6);
  EXPECT_FLOAT_EQ(at("linear", epoch - 1), 0.4f);
  EXPECT_FLOAT_EQ(at("linear", 0, 256, 0), 0.4f);
  EXPECT_FLOAT_EQ(at("constant", 0), 0.01f);
}

TEST(StepSize, CosineFallsFromTheWarmUpsEndToZeroBehindTheLastStep) {
  EXPECT_FLOAT_EQ(at("cosine", epoch - 1), 0.1f);
  for (std::size_t s = epoch; s < run; ++s) EXPECT_LT(at("cosine", s), at("cosine", s - 1));
  EXPECT_GT(at("cosine", run - 1), 0.0f);
  EXPECT_NEAR(at("cosine", run), 0, 1e-9);
  for (std::size_t s = 0; s <= run; ++s) {
    EXPECT_NEAR(at("cosine", s, 256, 0), 0.05 * (1 + std::cos(std::numbers::pi * static_cast<double>(s) / run)), 1e-7);
  }
  EXPECT_FLOAT_EQ(at("linear+cosine", epoch - 1), 0.4f);
  EXPECT_FLOAT_EQ(at("linear+cosine", 25), 4 * at("cosine", 25));
}

TEST(StepSize, AWarmUpLongerThanTheRunIsOnlyItsBeginning) {
  EXPECT_FLOAT_EQ(at("cosine", run - 1, 256, 8), 0.05f);
  EXPECT_FLOAT_EQ(at("constant", run - 1, 256, 8), 0.05f);
}

TEST(StepSize, NamesAreCanonical) {
  EXPECT_EQ(StepSizeRule().name(), "constant");
  EXPECT_EQ(StepSizeRule("linear").name(), "linear:batch=64");
  EXPECT_EQ(StepSizeRule("cosine+linear:batch=32").name(), "linear:batch=32+cosine");
  EXPECT_EQ(StepSizeRule("constant+sqrt").name(), "sqrt:batch=64");
  for (const auto& r : step_size_rules()) {
    const std::string name = StepSizeRule(r.name).name();
    EXPECT_EQ(StepSizeRule(name).name(), name);
    EXPECT_FALSE(r.source.empty());
  }
}

TEST(StepSize, WhatMeansNothingIsRefused) {
  for (const auto& r : step_size_rules()) EXPECT_THAT(refusal("exponential"), HasSubstr(std::string(r.name)));
  EXPECT_THAT(refusal("linear+sqrt"), HasSubstr("exclude each other"));
  EXPECT_THAT(refusal("constant+cosine"), HasSubstr("exclude each other"));
  EXPECT_THAT(refusal("cosine:batch=64"), HasSubstr("takes no parameters"));
  for (const auto* rule : {"", "linear+", "+cosine", "linear:batch=0", "linear:batch=1.5", "linear:size=2"}) {
    EXPECT_NE(refusal(rule), "accepted") << rule;
  }
}

}  // namespace
}  // namespace gradmeter::bench
