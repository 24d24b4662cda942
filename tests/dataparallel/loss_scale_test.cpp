// SPDX-License-Identifier: Apache-2.0
#include "dataparallel/loss_scale.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "core/error.hpp"
#include "dataparallel/optimizers/optimizer.hpp"
#include "model/registry.hpp"
#include "support/overflowing.hpp"
#include "support/strategy_runs.hpp"

namespace gradmeter::dataparallel {
namespace {

using test::farthest;
using test::ForwardingModel;
using test::Overflowing;
using test::run_workers;
using test::StrategyEnd;
using test::StrategyRun;

constexpr float overflow = std::numeric_limits<float>::infinity();

/// The gradient of a loss that is a mean over a million times the labels.
class SmallLoss final : public ForwardingModel {
 public:
  static constexpr float size = 0x1p-20F;
  explicit SmallLoss(std::unique_ptr<model::Model> inner) : ForwardingModel(std::move(inner)) {}
  void run_pass(runtime::Queue& q, model::Buffers b, const model::Batch& batch, const Ready& ready,
                const model::OutcomePlace& outcome) override {
    scale_ = size * (batch.loss_scale.count() > 0 ? batch.loss_scale.values<float>()[0] : 1);
    model::Batch small = batch;
    small.loss_scale = std::span(&scale_, 1);
    inner_->run_pass(q, b, small, ready, outcome);
  }

 private:
  float scale_ = 0;
};

constexpr int spoilt_step = 2;

/// On the last rank alone.
StrategyRun spoilt(int ranks, StrategyRun run) {
  run.around = [ranks](std::unique_ptr<model::Model> m, int rank) -> std::unique_ptr<model::Model> {
    return std::make_unique<Overflowing>(std::move(m), rank + 1 == ranks ? spoilt_step : -1);
  };
  return run;
}

TEST(LossScale, NamesAreCanonicalAndWrongOnesAreRefused) {
  EXPECT_EQ(parse_loss_scaling("none").text(), "none");
  EXPECT_EQ(parse_loss_scaling("1").text(), "none");
  EXPECT_EQ(parse_loss_scaling("1024").text(), "1024");
  EXPECT_EQ(parse_loss_scaling("0.25").start, 0.25F);
  EXPECT_EQ(parse_loss_scaling("dynamic").text(), "dynamic:grow=2000,start=65536");
  EXPECT_EQ(parse_loss_scaling("dynamic:start=8,grow=3").text(), "dynamic:grow=3,start=8");
  EXPECT_TRUE(parse_loss_scaling("dynamic:start=1").used());
  for (const char* wrong : {"", "0", "-2", "1e40", "nan", "many", "1024x", "dynamic:grow=0", "dynamic:start=0",
                            "dynamic:stop=1", "dynamic:8"})
    EXPECT_THROW(parse_loss_scaling(wrong), core::UsageError) << wrong;
}

TEST(LossScale, GrowsAfterGoodStepsInARowAndIsHalvedByOthers) {
  LossScaler scaler({.start = 8, .growth_interval = 3});
  runtime::HostQueue queue;
  std::vector<float> found;
  for (const char step : std::string("ggg"
                                     "bgg"
                                     "bb"
                                     "gggggg"
                                     "ggb"
                                     "gg")) {
    std::vector<float> g(100, 1.0F);
    if (step == 'b') g[57] = found.size() % 2 == 0 ? overflow : std::nanf("");
    scaler.submit_check(queue, g);
    EXPECT_EQ(scaler.skips_step(queue), step == 'b');
    scaler.submit_end_of_step(queue);
    found.push_back(scaler.state(queue).scale);
  }
  EXPECT_THAT(found, ::testing::ElementsAre(8, 8, 16, 8, 8, 8, 4, 2, 2, 2, 4, 4, 4, 8, 8, 8, 4, 4, 4));
  EXPECT_EQ(scaler.state(queue).skipped, 4U);
}

TEST(LossScale, NeitherLimitOfFp32IsLeft) {
  runtime::HostQueue queue;
  LossScaler up({.start = 0x1p127F, .growth_interval = 1}), down({.start = 0x1p-126F, .growth_interval = 1});
  up.submit_end_of_step(queue);
  EXPECT_EQ(up.state(queue).scale, 0x1p127F);
  down.note_not_finite(queue);
  down.submit_end_of_step(queue);
  EXPECT_EQ(down.state(queue).scale, 0x1p-126F);
}

TEST(LossScale, AnOptimizerSeesNothingOfSkippedSteps) {
  std::vector<std::string> names{"adamw:update=bf16-kahan"};
  for (const auto& row : optimizers()) names.emplace_back(row.name);
  for (const std::string& name : names) {
    LossScaler scaler({.start = 8, .growth_interval = 100});
    runtime::HostQueue queue;
    std::vector<float> w(64, 0.5F), g(64, 0.25F), bad(64, overflow), plain(w);
    const auto skipping = make_optimizer(name, {.elements = 64}), seen = make_optimizer(name, {.elements = 64});
    EXPECT_EQ(skipping->name(), seen->name());
    std::uint64_t steps = 0;
    for (std::uint64_t n = 1; n <= 5; ++n) {
      const auto& change = n == 2 ? bad : g;
      scaler.submit_check(queue, change);
      skipping->apply(w, change, 0, {.step_size = 0.1F, .number = n, .loss_scale_counts = scaler.counts()});
      scaler.submit_end_of_step(queue);
      if (n != 2) seen->apply(plain, g, 0, {.step_size = 0.1F, .number = ++steps});
    }
    EXPECT_EQ(w, plain) << name;
    EXPECT_GT(farthest(w, std::vector<float>(64, 0.5F)), 1e-4) << name;
  }
}

TEST(LossScale, PowersOfTwoLeaveTheBitsOfAnFp32Run) {
  for (const char* strategy :
       {"sync", "sharded", "independent", "ps-sync", "model-averaging:every=2", "gossip", "d-psgd"}) {
    const StrategyRun none{.strategy = strategy, .steps = 4};
    const auto plain = run_workers(3, none);
    const bool adapts = find_strategy(strategy)->info().may_skip_steps;
    for (const char* scale : {"1024", "0.125", "dynamic:start=65536,grow=2"}) {
      if (!adapts && parse_loss_scaling(scale).adapts()) continue;
      StrategyRun run = none;
      run.loss_scale = scale;
      const auto scaled = run_workers(3, run);
      for (std::size_t r = 0; r < plain.size(); ++r) EXPECT_EQ(scaled[r].hashes, plain[r].hashes) << strategy << scale;
      if (parse_loss_scaling(scale).adapts()) {
        EXPECT_EQ(scaled[0].loss_scale.scale, 4 * 65536.0F) << "it has doubled twice";
      }
    }
    StrategyRun run = none;
    run.loss_scale = "1000";
    const auto scaled = run_workers(3, run);
    EXPECT_NE(scaled[0].hashes, plain[0].hashes) << "a thousandth rounds";
    EXPECT_LT(farthest(scaled[0].weights, plain[0].weights), 1e-6) << strategy;
  }
}

TEST(LossScale, OneRanksOverflowSkipsTheStepOnAllRanks) {
  for (const int ranks : {1, 2, 4})
    for (const char* strategy : {"sync", "sharded"})
      for (const char* optimizer : {"momentum", "adam", "lars"}) {
        const std::string what = std::to_string(ranks) + strategy + optimizer;
        const StrategyRun run{
            .strategy = strategy, .optimizer = optimizer, .loss_scale = "dynamic:start=4096", .steps = 6};
        const auto ends = run_workers(ranks, spoilt(ranks, run));
        for (const StrategyEnd& end : ends) {
          EXPECT_EQ(end.hashes, ends[0].hashes) << what;
          EXPECT_EQ(end.loss_scale.skipped, 1U) << what;
          EXPECT_EQ(end.loss_scale.scale, 2048.0F) << what;
          for (int i = 1; i < run.steps; ++i)
            EXPECT_EQ(end.hashes[static_cast<std::size_t>(i)] == end.hashes[static_cast<std::size_t>(i) - 1],
                      i == spoilt_step)
                << what << " step " << i;
          for (const float w : end.weights) ASSERT_TRUE(std::isfinite(w)) << what;
        }
        StrategyRun fixed = run;
        fixed.loss_scale = "4096";
        const auto blind = run_workers(ranks, spoilt(ranks, fixed));
        EXPECT_FALSE(std::ranges::all_of(blind[0].weights, [](float w) { return std::isfinite(w); }))
            << what << ": a scale that stays looks at no gradient";
      }
}

/// Each rank alone, which only the strategy independent may do.
TEST(LossScale, RanksThatShareNothingSkipByThemselves) {
  const auto ends = run_workers(2, spoilt(2, {.strategy = "independent", .loss_scale = "dynamic:start=4096"}));
  EXPECT_EQ(ends[0].loss_scale.skipped, 0U);
  EXPECT_EQ(ends[1].loss_scale.skipped, 1U);
}

/// What ranks agree on is in the forecast.
TEST(LossScale, BytesOfAgreeingAreForecast) {
  for (const char* scale : {"none", "4096", "dynamic"})
    for (const char* optimizer : {"momentum", "lars"}) {
      const StrategyRun run{.strategy = "sharded", .optimizer = optimizer, .loss_scale = scale, .steps = 3};
      std::uint64_t sent = 0;
      for (const auto& end : run_workers(3, run)) sent += end.totals.bytes_sent;
      const auto model = run.model();
      const auto strategy = find_strategy("sharded")->make(
          {.bucket_bytes = run.bucket_bytes, .optimizer = optimizer, .loss_scale = parse_loss_scaling(scale)});
      EXPECT_EQ(
          sent,
          strategy->predict({.ranks = 3, .tensors = model->tensors(), .elements = model->element_count(), .steps = 3})
              .bytes)
          << scale << optimizer;
    }
}

/// Half precision has nothing between zero and 2^-24, where a small enough gradient is lost. The loss after 30 steps.
double loss_after(kernels::Precision precision, const char* loss_scale) {
  StrategyRun run{.optimizer = "sgd",
                  .loss_scale = loss_scale,
                  .steps = 30,
                  .step_size = 0.1F / SmallLoss::size,
                  .batch_per_rank = 32};
  run.model = [precision] {
    return model::make_model("mlp:784-16-10", {.features = 784, .classes = 10, .precision = precision});
  };
  run.around = [](std::unique_ptr<model::Model> m, int) { return std::make_unique<SmallLoss>(std::move(m)); };
  return run_workers(1, run)[0].outcomes.back().mean_loss();
}

TEST(LossScale, KeepsGradientsThatHalfPrecisionLoses) {
  using enum kernels::Precision;
  const double right = loss_after(fp32, "none"), lost = loss_after(fp16, "none");
  EXPECT_LT(right, 1);
  EXPECT_GT(lost, 1.5) << "biases alone, whose gradients are sums in fp32, learn little";
  EXPECT_NEAR(loss_after(fp16, "1048576"), right, 0.05);
  EXPECT_NEAR(loss_after(fp16, "dynamic:start=1048576"), right, 0.05);
  EXPECT_EQ(loss_after(fp32, "1048576"), right);
}

}  // namespace
}  // namespace gradmeter::dataparallel
