// SPDX-License-Identifier: Apache-2.0
#include "dataparallel/optimizers/weight_format.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "core/element.hpp"
#include "core/error.hpp"
#include "core/random.hpp"
#include "kernels/lns/lns.hpp"
#include "support/kernel_references.hpp"
#include "support/strategy_runs.hpp"

namespace gradmeter::dataparallel {
namespace {

using test::farthest;
using test::run_workers;
using test::StrategyRun;

std::vector<float> noise(std::size_t n, std::uint64_t stream, double size) {
  const core::Random random(5, stream);
  std::vector<float> out(n);
  for (std::size_t i = 0; i < n; ++i) out[i] = static_cast<float>(size * random.gaussian(i));
  return out;
}

/// The nearest number of the format, by the references of both systems.
float nearest(std::string_view format, float x) {
  if (format.starts_with("bf16")) return core::to_float(core::bf16_format, core::from_float(core::bf16_format, x));
  const unsigned bits = format.find("-f7") != format.npos ? 7 : format.find("-f6") != format.npos ? 6 : 8;
  const kernels::Lns lns(bits);
  return static_cast<float>(lns.decode(lns.encode(double{x})));
}

/// Weights after some steps of plain SGD with the gradients given.
std::vector<float> descend(const std::string& optimizer, std::vector<float> w, std::vector<float> g, float size,
                           std::uint64_t steps) {
  const auto rule = make_optimizer(optimizer, {.elements = w.size()});
  for (std::uint64_t i = 1; i <= steps; ++i) rule->apply(w, g, 0, {.step_size = size, .number = i});
  return w;
}

TEST(UpdateFormat, NamesAreCanonicalAndMakeThemselvesAgain) {
  EXPECT_EQ(make_optimizer("sgd:update=fp32", {.elements = 4})->name(), "sgd");
  EXPECT_EQ(make_optimizer("momentum:update=bf16", {.elements = 4})->name(), "momentum:mu=0.9,update=bf16");
  EXPECT_EQ(with_update_format("momentum:mu=0.8", "bf16-sr"), "momentum:mu=0.8,update=bf16-sr");
  EXPECT_EQ(with_update_format("sgd:update=lns16", "lns16"), "sgd:update=lns16");
  EXPECT_THROW(with_update_format("sgd:update=lns16", "bf16"), core::UsageError);
  EXPECT_EQ(with_update_format("sgd:update=lns16", "fp32"), "sgd:update=lns16") << "fp32 is what is taken unasked";
  EXPECT_THROW(make_optimizer("sgd:update=bf17", {.elements = 4}), core::UsageError);
  for (const auto& u : update_formats()) {
    const std::string name = with_update_format("adamw", u.name);
    const auto made = make_optimizer(name, {.elements = 4})->name();
    EXPECT_EQ(make_optimizer(made, {.elements = 4})->name(), made);
    EXPECT_EQ(update_format_of(made), u.name);
  }
}

TEST(UpdateFormat, WeightsAreAlwaysNumbersOfTheFormat) {
  for (const auto& u : update_formats()) {
    if (u.name == "fp32") continue;
    const auto format = make_update_format(u.name);
    auto w = noise(5000, 1, 0.1);
    const auto exact = w;
    format->round(w);
    for (std::size_t i = 0; i < w.size(); ++i) ASSERT_EQ(w[i], nearest(u.name, exact[i])) << u.name;
    for (const auto& o : optimizers()) {
      if (make_optimizer(o.name, {.elements = 4})->needs_whole_tensors()) continue;
      const auto after = descend(with_update_format(o.name, u.name), w, noise(5000, 2, 1), 0.01f, 3);
      for (const float x : after) ASSERT_EQ(x, nearest(u.name, x)) << u.name << ' ' << o.name;
      EXPECT_GT(farthest(after, w), 1e-3) << u.name << ' ' << o.name;
    }
  }
}

TEST(UpdateFormat, OneStepIsTheNearestNumberToWhatFp32Gives) {
  auto w = noise(5000, 1, 0.1);
  make_update_format("bf16")->round(w);
  const auto g = noise(5000, 2, 1);
  const auto fp32 = descend("sgd", w, g, 0.01f, 1), bf16 = descend("sgd:update=bf16", w, g, 0.01f, 1);
  for (std::size_t i = 0; i < w.size(); ++i) ASSERT_EQ(bf16[i], nearest("bf16", fp32[i]));
}

TEST(UpdateFormat, InLogarithmsAStepOfSgdIsTheSystemsOwnProductAndSum) {
  auto w = noise(3000, 1, 0.1);
  make_update_format("lns16-f7")->round(w);
  const auto g = noise(3000, 2, 1);
  const auto plain = descend("sgd:update=lns16-f7", w, g, 0.01f, 2),
             kahan = descend("sgd:update=lns16-f7-kahan", w, g, 0.01f, 2);
  const kernels::Lns lns(7);
  const auto step = lns.encode(-double{0.01f});
  for (std::size_t i = 0; i < w.size(); ++i) {
    const auto change = lns.multiply(step, lns.encode(double{g[i]}));
    kernels::LnsKahan sum{.w = lns.encode(double{w[i]}), .c = {}};
    const auto twice = lns.add(lns.add(sum.w, change), change);
    sum.add(lns, change);
    sum.add(lns, change);
    ASSERT_EQ(plain[i], static_cast<float>(lns.decode(twice))) << i;
    ASSERT_EQ(kahan[i], static_cast<float>(lns.decode(sum.w))) << i;
  }
}

TEST(UpdateFormat, OtherOptimizersStepsAreRoundedToALogarithmAndAdded) {
  auto w = noise(3000, 1, 0.1);
  make_update_format("lns16-f7")->round(w);
  const auto g = noise(3000, 2, 1);
  const auto after = descend("momentum:update=lns16-f7", w, g, 0.01f, 1);
  const kernels::Lns lns(7);
  for (std::size_t i = 0; i < w.size(); ++i) {
    const double target = double{w[i] - 0.01f * g[i]};  // as the optimizer rounds it, but for a fused product
    const auto sum = lns.add(lns.encode(double{w[i]}), lns.encode(target - double{w[i]}));
    ASSERT_NEAR(after[i], lns.decode(sum), 0.012 * (std::fabs(target) + 1e-4)) << i;
  }
}

/// 2000 steps of a 2000th each: what should become 2 stays 1 where each step is less than half a neighbour's distance.
TEST(UpdateFormat, StepsThatRoundingLosesAreKeptByACarryAndOnAverageByDraws) {
  constexpr std::uint64_t steps = 2000;
  const std::vector<float> ones(256, 1.0f), back(256, -1.0f);
  const auto mean_after = [&](const std::string& format) {
    const auto w = descend("sgd:update=" + format, ones, back, 1.0f / steps, steps);
    double sum = 0;
    for (const float x : w) sum += double{x};
    return sum / static_cast<double>(w.size());
  };
  for (const char* loses : {"bf16", "lns16", "lns16-f7", "lns16-f6"}) EXPECT_LT(mean_after(loses), 1.01) << loses;
  EXPECT_NEAR(mean_after("bf16-kahan"), 2, 0.008);
  EXPECT_NEAR(mean_after("bf16-sr"), 2, 0.012) << "256 weights, each off by a standard deviation of 0.06 at most";
  EXPECT_NEAR(mean_after("lns16-kahan"), 2, 0.012);
  EXPECT_NEAR(mean_after("lns16-f7-kahan"), 2, 0.024);
  EXPECT_NEAR(mean_after("lns16-f6-kahan"), 2, 0.048);
}

TEST(UpdateFormat, DrawsAreUnbiasedAndDependOnPlaceAndStepAlone) {
  const auto sr = make_update_format("bf16-sr");
  const float low = 1.0f, quarter = low + 0.25f * 0x1p-7f;
  const std::vector<float> target(40001, quarter);
  std::vector<float> w(target.size(), low), late(w), later(w);
  sr->add(w, target, runtime::empty_buffer, 3, {.number = 1});
  std::size_t up = 0;
  for (const float x : w) up += x > low ? 1 : 0;
  EXPECT_NEAR(static_cast<double>(up) / static_cast<double>(w.size()), 0.25, 5 * std::sqrt(0.25 * 0.75 / 40001));
  constexpr std::size_t cut = 1777;
  sr->add(std::span(late).first(cut), std::span(target).first(cut), runtime::empty_buffer, 3, {.number = 1});
  sr->add(std::span(late).subspan(cut), std::span(target).subspan(cut), runtime::empty_buffer, 3 + cut, {.number = 1});
  EXPECT_EQ(late, w) << "however the elements are cut";
  sr->add(later, target, runtime::empty_buffer, 3, {.number = 2});
  EXPECT_NE(later, w) << "another step draws other numbers";
}

TEST(UpdateFormat, WhatIsNoNumberStaysWhatItIs) {
  const float infinity = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  for (const char* name : {"bf16", "bf16-sr"}) {
    std::vector<float> w{0, 0, 0};
    make_update_format(name)->add(w, std::vector{infinity, -infinity, nan}, runtime::empty_buffer, 0, {.number = 1});
    EXPECT_EQ(w[0], infinity) << name;
    EXPECT_EQ(w[1], -infinity) << name;
    EXPECT_TRUE(std::isnan(w[2])) << name;
  }
}

TEST(UpdateFormat, ShardedIsSyncAndServersKeepTheFormat) {
  for (const auto& u : update_formats()) {
    StrategyRun run{.strategy = "sync", .optimizer = with_update_format("momentum", u.name), .steps = 4};
    const auto sync = run_workers(3, run);
    run.strategy = "sharded";
    const auto sharded = run_workers(3, run);
    run.strategy = "ps-sync";
    const auto served = run_workers(3, run);
    for (std::size_t r = 0; r < sync.size(); ++r) {
      EXPECT_EQ(farthest(sharded[r].weights, sync[r].weights), 0) << u.name;
      EXPECT_EQ(sync[r].weights, sync[0].weights) << u.name;
      if (u.name == "fp32") continue;
      for (const auto* end : {&sync[r], &served[r]})
        for (const float x : end->weights) ASSERT_EQ(x, nearest(u.name, x)) << u.name;
    }
    if (u.name == "fp32") continue;
    run.strategy = "sync";
    run.optimizer = "momentum";
    EXPECT_GT(farthest(run_workers(3, run)[0].weights, sync[0].weights), 1e-6) << u.name << " is another run";
  }
}

/// One rank's gradients after a step.
std::vector<float> gradients_of_a_step(const std::string& format) {
  std::vector<float> found;
  SimWorld(1, {}).run([&](Fabric& fabric) {
    kernels::set_compute_threads(1);
    const auto data = test::training_digits();
    Assembly assembly(fabric, {.model =
                                   [](auto&, auto&) {
                                     return std::make_unique<model::Mlp>(std::vector<std::size_t>{784, 16, 10});
                                   },
                               .strategy = find_strategy("sync"),
                               .strategy_options = {.gradient_format = format}});
    test::Samples samples(fabric, *data, 8, 0, 1);
    assembly.strategy().begin(assembly.worker());
    (void)assembly.strategy().step(assembly.worker(), samples.batch(0), {.step_size = 0.01F, .number = 1});
    found = test::values_of(fabric, assembly.buffers().gradients);
  });
  return found;
}

TEST(GradientFormat, BackwardRoundsEachGradientAndItsCodecLosesNothing) {
  const auto exact = gradients_of_a_step("fp32"), own = gradients_of_a_step("bf16");
  const auto codec = compression::find_codec("bf16:ef=off,min=0");
  const auto lost = [&](const std::vector<float>& g) {
    std::vector<std::byte> wire(codec->codec->wire_bytes(g.size()));
    std::vector<float> back(g.size());
    codec->codec->encode(g, wire.data(), {});
    codec->codec->decode(wire, back);
    return farthest(back, g);
  };
  EXPECT_EQ(codec->codec->wire_bytes(4096), 2 * 4096U);
  EXPECT_EQ(lost(own), 0);
  EXPECT_GT(lost(exact), 1e-6) << "gradients in fp32 are rounded by it";
  for (std::size_t i = 0; i < own.size(); ++i) ASSERT_EQ(own[i], nearest("bf16", exact[i])) << i;
}

}  // namespace
}  // namespace gradmeter::dataparallel
