// SPDX-License-Identifier: Apache-2.0
// Pipelines whose last stage shares the first one's weight: a softmax that is tied to the embedding.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "dataparallel/mesh.hpp"
#include "dataparallel/strategy.hpp"
#include "support/mesh_training.hpp"
#include "support/sanitized.hpp"

namespace gradmeter::dataparallel {
namespace {

using test::bytes_sent;
using test::largest_difference;
using test::losses_of;
using test::MeshTrace;
using test::MeshTraining;
using test::run_mesh;

constexpr const char* tied_lstm = "lstm-lm:hidden=12,layers=2,tied=1";
constexpr const char* tied_transformer = "transformer-lm:ff=20,heads=2,hidden=12,layers=1,tied=1";

MeshTraining tied_training(std::string mesh, const char* model, int steps, std::size_t accumulate = 1) {
  return {.mesh = std::move(mesh),
          .model = model,
          .accumulate = accumulate,
          .training = {.batch_global = 24, .steps = steps, .step_size = 0.1F, .own_start = false}};
}

class TiedStages : public ::testing::TestWithParam<const char*> {};

TEST_P(TiedStages, HaveTheLossesOfOneRankFor100Steps) {
  const auto one = run_mesh(tied_training("data", GetParam(), 100));
  ASSERT_LT(losses_of(one).back(), 0.95 * losses_of(one).front()) << "the run must learn, or it shows nothing";
  for (const auto* const mesh : {"pipeline=2", "pipeline=3,schedule=gpipe", "data=2,pipeline=2", "data=3,pipeline=3"}) {
    const auto many = run_mesh(tied_training(mesh, GetParam(), 100, 4));
    EXPECT_LT(largest_difference(losses_of(many), losses_of(one)), 1e-5) << mesh;
    const MeshTrace& last = many.back();
    EXPECT_EQ(last.validation.labels, one[0].validation.labels) << mesh;
    EXPECT_NEAR(last.validation.mean_loss(), one[0].validation.mean_loss(), 1e-5) << mesh;
    if (test::sanitized) break;
  }
}

TEST_P(TiedStages, HaveTheWeightOnceAndTheWholeModelsAtTheEnd) {
  const auto one = run_mesh(tied_training("data", GetParam(), 12));
  const auto many = run_mesh(tied_training("pipeline=3", GetParam(), 12));
  std::vector<float> weights;  // stages come in the order of layers, tensors in the other
  std::vector<std::string> names;
  for (std::size_t s = many.size(); s-- > 0;) {
    weights.insert(weights.end(), many[s].weights.begin(), many[s].weights.end());
    names.insert(names.end(), many[s].names.begin(), many[s].names.end());
  }
  EXPECT_EQ(names, one[0].names);
  EXPECT_LT(largest_difference(weights, one[0].weights), 1e-6);
}

TEST_P(TiedStages, SendTheWeightAndItsGradientOnceAPass) {
  constexpr std::size_t words = 16, hidden = 12, width = 6 * hidden, samples = 24;
  for (const std::size_t micro_batches : {1U, 4U}) {
    const auto traces = run_mesh(tied_training("pipeline=2", GetParam(), 2, micro_batches));
    for (const MeshTrace& t : traces)
      EXPECT_EQ(t.bytes_sent, (samples * width + words * hidden) * sizeof(float)) << micro_batches;
  }
  for (const auto* const mesh : {"pipeline=3", "data=2,pipeline=2,schedule=gpipe"}) {
    for (const auto* const strategy : {"sync", "sharded", "es:pairs=2"}) {
      MeshTraining t = tied_training(mesh, GetParam(), 2, 2);
      t.training.strategy = strategy;
      EXPECT_EQ(bytes_sent(run_mesh(t)), test::forecast_of(t)) << mesh << " " << strategy;
    }
  }
}

TEST_P(TiedStages, ALostWeightOrGradientShows) {
  const auto one = losses_of(run_mesh(tied_training("data", GetParam(), 100)));
  for (const auto lost : {model::OtherStage::first, model::OtherStage::last}) {
    MeshTraining t = tied_training("pipeline=2", GetParam(), 100);
    t.lost = lost;
    EXPECT_GT(largest_difference(losses_of(run_mesh(t)), one), 1e-3);
  }
}

INSTANTIATE_TEST_SUITE_P(Of, TiedStages, ::testing::Values(tied_lstm, tied_transformer), [](const auto& instance) {
  return std::string(instance.param).substr(0, std::string(instance.param).find('-'));
});

TEST(TiedStagesOfTensorRanks, HaveTheLossesOfOneRankAndEqualWeights) {
  const auto one = run_mesh(tied_training("data", tied_transformer, 100));
  for (const auto* const mesh : {"tensor=2,pipeline=2", "data=2,tensor=2,pipeline=2"}) {
    const auto many = run_mesh(tied_training(mesh, tied_transformer, 100, 2));
    EXPECT_LT(largest_difference(losses_of(many), losses_of(one)), 1e-5) << mesh;
    for (const MeshTrace& t : many) {
      const MeshTrace& first = many[static_cast<std::size_t>(parse_mesh(mesh).rank({.stage = t.place.stage}))];
      const std::size_t last = t.names.size() - 1;
      EXPECT_EQ(t.gradients[last], first.gradients[last]) << t.names[last];
    }
  }
}

TEST(TiedStagesOfReplicas, GoWithEveryStrategyOfTheTable) {
  for (const StrategyInfo& info : strategies()) {
    const bool by_time = uses_ports(info.communication) && info.name != "ps-sync";
    MeshTraining t = tied_training("data=2", tied_lstm, 8);
    t.training.strategy = info.name;
    if (info.optimizer.empty()) t.training.step_size = info.step_size;
    const auto flat = losses_of(run_mesh(t));
    t.mesh = "data=2,pipeline=2";
    EXPECT_LT(largest_difference(losses_of(run_mesh(t)), flat), by_time ? 0.2 : 1e-5) << info.name;
  }
}

}  // namespace
}  // namespace gradmeter::dataparallel
