// SPDX-License-Identifier: Apache-2.0
// Evolution strategies and population search, and the noise that they draw.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "core/error.hpp"
#include "core/format.hpp"
#include "dataparallel/strategies/evolution.hpp"
#include "support/linear_model.hpp"
#include "support/mlp.hpp"
#include "support/strategy_runs.hpp"

namespace gradmeter::dataparallel {
namespace {

using test::run_workers;
using test::StrategyEnd;
using test::StrategyRun;

std::vector<float> signs(std::size_t n, NoiseName name, std::size_t first = 0) {
  std::vector<float> out(n, 0.0f);
  add_signs(out, name, 1, first);
  return out;
}

TEST(Signs, AreFairAndIndependentOfEachOther) {
  constexpr std::size_t n = 1 << 16;
  const std::vector<std::vector<float>> draws{signs(n, {1, 1, 0}), signs(n, {1, 1, 1}), signs(n, {1, 2, 0}),
                                              signs(n, {2, 1, 0})};
  const double bound = 4.5 * std::sqrt(double(n));  // a sum of n fair signs is beyond it once in 150,000 times
  for (std::size_t a = 0; a < draws.size(); ++a) {
    double sum = 0, neighbours = 0;
    for (std::size_t i = 0; i < n; ++i) {
      ASSERT_EQ(std::fabs(draws[a][i]), 1.0f);
      sum += draws[a][i];
      neighbours += i > 0 ? draws[a][i] * draws[a][i - 1] : 0;
    }
    EXPECT_LT(std::fabs(sum), bound);
    EXPECT_LT(std::fabs(neighbours), bound);
    for (std::size_t b = 0; b < a; ++b) {
      double both = 0;
      for (std::size_t i = 0; i < n; ++i) both += draws[a][i] * draws[b][i];
      EXPECT_LT(std::fabs(both), bound) << a << " and " << b;
    }
  }
}

TEST(Signs, OfAPartAreThePartOfThem) {
  const NoiseName name{3, 5, 2};
  const auto whole = signs(1000, name);
  const auto part = signs(333, name, 256);
  for (std::size_t i = 0; i < part.size(); ++i) ASSERT_EQ(part[i], whole[256 + i]) << i;
  const auto unaligned = signs(300, name, 77);
  for (std::size_t i = 0; i < unaligned.size(); ++i) ASSERT_EQ(unaligned[i], whole[77 + i]) << i;
}

TEST(Signs, OfAModelsPartsAreThoseOfTheWholeModel) {
  const std::vector<std::size_t> widths{30, 12, 8, 10};
  const model::Mlp whole(widths);
  const NoiseName name{3, 5, 2};
  std::vector<float> all(whole.element_count(), 0.0f);
  add_signs(all, noise_runs(whole.tensors(), 50), name, 1);
  for (const auto& t : whole.tensors()) {
    const auto expected = signs(t.count, name, t.offset);
    EXPECT_TRUE(std::equal(expected.begin(), expected.end(), all.begin() + static_cast<std::ptrdiff_t>(t.offset)));
  }
  std::size_t parts = 0, elsewhere = 0;
  for (std::size_t rank = 0; rank < 2; ++rank) {
    for (std::size_t stage = 0; stage < 2; ++stage) {
      const model::Mlp part(widths, {.tensor_rank = rank, .tensor_ranks = 2, .stage = stage, .stages = 2});
      std::vector<float> mine(part.element_count(), 0.0f);
      add_signs(mine, noise_runs(part.tensors(), 50), name, 1);
      for (const auto& t : part.tensors()) {
        for (std::size_t i = 0; i < t.count; ++i) {
          ASSERT_EQ(mine[t.offset + i], all[t.whole.of(i)]) << t.name << " " << i;
          elsewhere += mine[t.offset + i] != all[t.offset + i] ? 1 : 0;
          ++parts;
        }
      }
    }
  }
  EXPECT_GT(elsewhere, parts / 4) << "control: by places in the part the signs are others";
}

/// The estimate's relative error over one step of size 1: θ moves by the estimated gradient.
double relative_error(int workers, std::size_t pairs, std::size_t d) {
  StrategyRun run{.strategy = fmt::format("es:pairs={},sigma=0.5", pairs), .steps = 1, .step_size = 1};
  run.model = [d] { return std::make_unique<test::LinearModel>(d); };
  const auto after = run_workers(workers, run)[0].weights;
  run.step_size = 0;
  const auto before = run_workers(workers, run)[0].weights;
  const test::LinearModel m(d);
  double wrong = 0, all = 0;
  for (std::size_t i = 0; i < d; ++i) {
    const double slope = m.slope()[i], moved = double(before[i]) - double(after[i]);
    wrong += (moved - slope) * (moved - slope);
    all += slope * slope;
  }
  return std::sqrt(wrong / all);
}

TEST(Es, OnALinearLossTheEstimateIsOffByWhatTheoryPredicts) {
  for (const auto& [workers, pairs, d] : {std::tuple{1, 64u, 300u}, {2, 512u, 300u}, {4, 2048u, 100u}}) {
    const double expected = std::sqrt((double(d) + 1) / pairs);
    EXPECT_NEAR(relative_error(workers, pairs, d), expected, 0.15 * expected) << pairs << " pairs, " << d << " weights";
  }
}

TEST(Es, HoldsWhateverTheNumberOfWorkersWhenTheBatchIsTheSame) {
  // The linear loss is the same on every batch: where pairs are evaluated must not matter.
  StrategyRun run{.strategy = "es:pairs=8,sigma=0.5", .steps = 3, .step_size = 0.1f};
  run.model = [] { return std::make_unique<test::LinearModel>(500); };
  const auto one = run_workers(1, run)[0].weights;
  for (const int p : {2, 4, 8}) EXPECT_EQ(run_workers(p, run)[1].weights, one) << p;
  EXPECT_NE(run_workers(3, run)[1].weights, one) << "nine pairs are another estimate than eight";
}

TEST(Es, LowersTheLossOfANetwork) {
  const auto ends = run_workers(4, {.strategy = "es:pairs=32,sigma=0.02", .steps = 20, .step_size = 0.002f});
  double first = 0, last = 0;
  for (const auto& e : ends) first += e.outcomes.front().loss_sum, last += e.outcomes.back().loss_sum;
  EXPECT_LT(last, 0.95 * first);
}

/// Of the whole training set, with the evaluation weights.
double loss_of(const std::vector<float>& weights) {
  model::Mlp mlp({784, 16, 10});
  std::vector<float> p = weights, g(weights.size());
  const auto data = test::training_digits();
  runtime::HostQueue queue;
  test::Samples samples(queue, *data, 480, 0, 1);
  return mlp.forward(queue, {p, g}, samples.batch(0)).get().loss_sum / 480;
}

TEST(Population, FindsBetterModelsThanItBeganWith) {
  for (const auto* parameters : {"breeding=1", "breeding=0", "size=18"}) {
    StrategyRun run{.strategy = fmt::format("population:{}", parameters), .steps = 1, .batch_per_rank = 30};
    const double begin = loss_of(run_workers(4, run)[0].evaluation_weights);
    run.steps = 120;
    EXPECT_LT(loss_of(run_workers(4, run)[0].evaluation_weights), 0.85 * begin) << parameters;
  }
}

TEST(Population, HandsOverOneModelOnAllRanksTheBestOfTheLastStep) {
  StrategyRun run{.strategy = "population:size=8,survivors=2,mutation=0.1", .steps = 3};
  run.model = [] { return std::make_unique<test::LinearModel>(200); };
  const test::LinearModel m(200);
  for (const int p : {1, 2, 4}) {
    const auto ends = run_workers(p, run);
    double least = 1e9;
    for (const auto& e : ends) least = std::min(least, e.outcomes.back().loss_sum / 4);
    double loss = 0;
    for (std::size_t i = 0; i < 200; ++i) loss += double(m.slope()[i]) * ends[0].evaluation_weights[i];
    EXPECT_NEAR(loss, least, 1e-9) << p;
    for (const auto& e : ends) EXPECT_EQ(e.evaluation_weights, ends[0].evaluation_weights) << p;
  }
}

TEST(Population, TheNumberOfRanksChangesTheRunOnlyByWhatTheirSamplesDo) {
  // The linear loss is the same on every batch: then a run on one rank and on four is the same search.
  StrategyRun run{.strategy = "population:size=8,survivors=3,mutation=0.1", .steps = 12};
  run.model = [] { return std::make_unique<test::LinearModel>(200); };
  const auto one = run_workers(1, run)[0].evaluation_weights;
  for (const int p : {2, 4, 8}) {
    for (const auto& e : run_workers(p, run)) EXPECT_EQ(e.evaluation_weights, one) << p;
  }
}

TEST(Population, SendsEachSurvivorAtMostOnceToEachRank) {
  const auto ends = run_workers(4, {.strategy = "population:size=64,survivors=2", .steps = 5});
  std::size_t sends = 0;
  for (const auto& e : ends) sends += e.sends;
  EXPECT_EQ(sends, 5u * 2 * 3) << "with so many children every rank wants every survivor";
}

TEST(Population, ParametersThatMeanNothingAreRefused) {
  for (const auto* name : {"population:size=4,survivors=4", "population:survivors=0", "population:mutation=0",
                           "population:decay=2", "es:pairs=0", "es:sigma=0"}) {
    EXPECT_THROW(find_strategy(name), core::UsageError) << name;
  }
}

}  // namespace
}  // namespace gradmeter::dataparallel
