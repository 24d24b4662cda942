// SPDX-License-Identifier: Apache-2.0
// Models that several ranks hold together have the losses of one rank.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
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
using test::odd_mlp;
using test::run_mesh;

SimMachine machine_with(std::string_view algorithm) {
  SimMachine m;
  m.algorithm = allreduce::find_algorithm(algorithm);
  return m;
}

struct Case {
  std::string mesh, model;
  std::size_t accumulate;
};
class MeshEqualsOneRank : public ::testing::TestWithParam<Case> {};

TEST_P(MeshEqualsOneRank, InTheLossOfEveryStepAndInValidation) {
  const auto& [mesh, model, accumulate] = GetParam();
  const auto one = run_mesh({.model = model});
  ASSERT_LT(losses_of(one).back(), 0.9 * losses_of(one).front()) << "the run must learn, or it shows nothing";
  const auto many = run_mesh({.mesh = mesh, .model = model, .accumulate = accumulate});
  EXPECT_LT(largest_difference(losses_of(many), losses_of(one)), 1e-5);
  const MeshShape shape = parse_mesh(mesh);
  for (const MeshTrace& t : many) {
    const bool reports = t.place.tensor == 0 && t.place.stage + 1 == shape.pipeline;
    EXPECT_EQ(t.validation.labels, reports ? 110u : 0u);
    if (!reports) continue;
    EXPECT_NEAR(t.validation.loss_sum, one[0].validation.loss_sum, 1e-3);
    EXPECT_EQ(t.validation.correct, one[0].validation.correct);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Virtual, MeshEqualsOneRank,
    ::testing::Values(Case{"tensor=2", "mlp:784-32-24-16-10", 1}, Case{"tensor=4", "mlp:784-32-24-16-10", 1},
                      Case{"tensor=2", odd_mlp, 1}, Case{"tensor=4", odd_mlp, 2},
                      Case{"pipeline=2", "mlp:784-32-24-16-10", 1}, Case{"pipeline=2", "mlp:784-32-24-16-10", 4},
                      Case{"pipeline=3", odd_mlp, 6}, Case{"pipeline=3,schedule=gpipe", odd_mlp, 4},
                      Case{"data=2,tensor=2", "mlp:784-32-24-16-10", 1}, Case{"data=3,tensor=2", odd_mlp, 1},
                      Case{"data=2,pipeline=2", "mlp:784-32-24-16-10", 3}, Case{"data=2,pipeline=3", odd_mlp, 1},
                      // Stages of one layer: their borders lie inside the pairs.
                      Case{"tensor=2,pipeline=4", "mlp:784-32-24-16-10", 2},
                      Case{"data=2,tensor=2,pipeline=2", "mlp:784-32-24-16-10", 3},
                      Case{"data=2,tensor=2,pipeline=2", "mlp:784-64-64-10", 2}),
    [](const auto& instance) {
      std::string n =
          instance.param.mesh + "_" + instance.param.model + "_k" + std::to_string(instance.param.accumulate);
      std::replace_if(
          n.begin(), n.end(), [](char c) { return !std::isalnum(static_cast<unsigned char>(c)); }, '_');
      return n;
    });

TEST(Mesh, EveryStrategyOfTheTableGoesWithIt) {
  for (const StrategyInfo& info : strategies()) {
    const bool judges = info.optimizer.empty();
    test::Training training{.strategy = info.name, .batch_global = 24, .steps = 8, .own_start = false};
    if (judges) training.step_size = info.step_size;
    const auto flat = losses_of(run_mesh({.mesh = "data=2", .training = training}));
    // Time decides what an asynchronous worker reads, and a split model takes another time.
    const bool by_time = uses_ports(info.communication) && info.name != "ps-sync";
    for (const auto* mesh : {"data=2,tensor=2", "data=2,pipeline=2"}) {
      const auto split = losses_of(run_mesh({.mesh = mesh, .training = training}));
      EXPECT_LT(largest_difference(split, flat), by_time ? 0.2 : 1e-5) << info.name << " " << mesh;
      if (judges) continue;  // so few steps without gradients may not show
      EXPECT_LT(split.back(), split.front()) << info.name << " " << mesh;
    }
  }
}

constexpr const char* norm_rules[] = {"lars:eta=0.1", "lamb"};

TEST(Mesh, RulesOfWholeTensorsTakeTheNormsOfAllTheirParts) {
  for (const char* rule : norm_rules) {
    const auto one = losses_of(run_mesh(test::norm_training(rule, "data")));
    ASSERT_LT(one.back(), 0.95 * one.front()) << rule << " must learn, or it shows nothing";
    for (const auto* mesh : {"tensor=2", "tensor=4", "pipeline=2", "data=2,tensor=2", "tensor=2,pipeline=3"}) {
      for (const auto* strategy : {"sync", "sharded", "gossip"}) {
        if (strategy == std::string("gossip") && mesh != std::string("tensor=2")) continue;
        EXPECT_LT(largest_difference(losses_of(run_mesh(test::norm_training(rule, mesh, strategy))), one), 1e-5)
            << rule << " " << mesh << " " << strategy;
      }
    }
    auto local = test::norm_training(rule, "tensor=2");
    local.local_norms = true;
    EXPECT_GT(largest_difference(losses_of(run_mesh(local)), one), 1e-3) << rule << ": norms of parts are others";
  }
}

TEST(Mesh, RulesOfWholeTensorsKeepEqualWhatAllTensorRanksHold) {
  for (const char* rule : norm_rules) {
    const auto traces = run_mesh(test::norm_training(rule, "tensor=4"));
    // The last layer, which comes first, is on all ranks: 10 x 16 weights and 10 biases, padded.
    constexpr std::size_t shared = 160 + 16;
    ASSERT_EQ(traces[0].names[1], "layer3.bias");
    for (std::size_t r = 1; r < 4; ++r) {
      EXPECT_TRUE(std::equal(traces[r].weights.begin(), traces[r].weights.begin() + shared, traces[0].weights.begin()));
      EXPECT_NE(traces[r].weights, traces[0].weights) << "the rest are shards";
    }
  }
}

TEST(Mesh, StrategiesWithoutGradientsSearchAsOneRankDoes) {
  for (const auto* strategy : {"es:pairs=4", "population:size=6,survivors=2,mutation=0.02"}) {
    const test::Training training{
        .strategy = strategy, .batch_global = 24, .steps = 10, .step_size = 0.002f, .own_start = false};
    const auto one = losses_of(run_mesh({.model = odd_mlp, .training = training}));
    EXPECT_GT(std::fabs(one.back() - one.front()), 1e-3) << strategy << " must move, or it shows nothing";
    for (const auto* mesh : {"tensor=2", "tensor=4", "pipeline=3", "tensor=2,pipeline=2"}) {
      for (const std::size_t accumulate : {1u, 2u}) {
        if (test::sanitized && accumulate > 1) continue;
        const MeshTraining t{.mesh = mesh, .model = odd_mlp, .accumulate = accumulate, .training = training};
        const auto many = run_mesh(t);
        EXPECT_LT(largest_difference(losses_of(many), one), 1e-5) << strategy << " " << mesh;
        EXPECT_EQ(bytes_sent(many), test::forecast_of(t)) << strategy << " " << mesh;
      }
    }
    const auto broken = run_mesh({.mesh = "tensor=2", .model = odd_mlp, .training = training, .wrong_shard = true});
    EXPECT_GT(largest_difference(losses_of(broken), one), 1e-3) << strategy << ": the wrong part must show";
  }
}

TEST(Mesh, AForgottenSumShows) {
  const auto one = losses_of(run_mesh({}));
  for (const std::size_t forgotten : {0u, 1u, 2u}) {  // two forward, one backward
    EXPECT_GT(largest_difference(losses_of(run_mesh({.mesh = "tensor=2", .forgotten = forgotten})), one), 1e-2)
        << forgotten;
  }
}

TEST(Mesh, TheWrongShardShows) {
  const auto one = run_mesh({}), broken = run_mesh({.mesh = "tensor=2", .wrong_shard = true});
  EXPECT_GT(largest_difference(losses_of(broken), losses_of(one)), 1e-2);
}

TEST(Mesh, WhatAllTensorRanksHoldHasEqualGradientsOnThem) {
  for (const auto* algorithm : {"ring", "recursive-doubling"}) {
    const auto traces = run_mesh({.mesh = "tensor=4", .model = odd_mlp}, machine_with(algorithm));
    const std::set<std::string> shared{"layer2.bias", "layer3.weight", "layer3.bias"};
    for (std::size_t i = 0; i < traces[0].names.size(); ++i) {
      for (std::size_t r = 1; r < 4; ++r) {
        if (shared.contains(traces[0].names[i])) {
          EXPECT_EQ(traces[r].gradients[i], traces[0].gradients[i]) << traces[0].names[i];
        } else {
          EXPECT_NE(traces[r].gradients[i], traces[0].gradients[i]) << traces[0].names[i] << " is a shard";
        }
      }
    }
  }
}

TEST(Mesh, APipelineHasTheBitsOfOneRankThatAccumulates) {
  for (const std::size_t k : {1u, 4u}) {
    const auto one = run_mesh({.model = odd_mlp, .accumulate = k});
    for (const auto* mesh : {"pipeline=3", "pipeline=3,schedule=gpipe"}) {
      const auto many = run_mesh({.mesh = mesh, .model = odd_mlp, .accumulate = k});
      EXPECT_EQ(losses_of(many), losses_of(one)) << mesh;
      // Stages come in the order of layers, tensors in the other.
      std::vector<float> weights;
      for (std::size_t s = 3; s-- > 0;) weights.insert(weights.end(), many[s].weights.begin(), many[s].weights.end());
      EXPECT_EQ(weights, one[0].weights) << mesh;
    }
  }
  EXPECT_NE(run_mesh({.model = odd_mlp, .accumulate = 4})[0].weights, run_mesh({.model = odd_mlp})[0].weights)
      << "sums in another order must show";
}

TEST(Accumulation, OfKMicroBatchesEqualsKRanksToTheBit) {
  for (const int ranks : {2, 3, 4}) {
    const auto k = static_cast<std::size_t>(ranks);
    const auto mesh = "data=" + std::to_string(ranks);
    const auto one = run_mesh({.accumulate = k}), many = run_mesh({.mesh = mesh}, machine_with("direct"));
    for (const MeshTrace& t : many) EXPECT_EQ(t.weights, one[0].weights) << ranks;
    EXPECT_NE(run_mesh({.accumulate = 6})[0].weights, one[0].weights) << "another number of micro-batches must show";
  }
  EXPECT_NE(run_mesh({.mesh = "data=4"}, machine_with("recursive-doubling"))[0].weights,
            run_mesh({.accumulate = 4})[0].weights)
      << "another order of sums must show";
}

TEST(Mesh, OneRankOfEachCopyReports) {
  const auto traces = run_mesh({.mesh = "data=2,tensor=2,pipeline=2", .accumulate = 2});
  for (const MeshTrace& t : traces) {
    const bool reports = t.place.tensor == 0 && t.place.stage == 1;
    for (const auto& o : t.outcomes) {
      EXPECT_EQ(o.labels, reports ? 12u : 0u);
      EXPECT_EQ(o.loss_sum > 0, reports);
      EXPECT_TRUE(reports || o.correct == 0);
    }
  }
}

}  // namespace
}  // namespace gradmeter::dataparallel
