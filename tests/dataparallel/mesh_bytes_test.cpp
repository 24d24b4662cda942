// SPDX-License-Identifier: Apache-2.0
// What ranks that hold a model together send: forecasts and closed forms.
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "dataparallel/mesh.hpp"
#include "dataparallel/strategy.hpp"
#include "support/mesh_training.hpp"

namespace gradmeter::dataparallel {
namespace {

using test::bytes_sent;
using test::MeshTrace;
using test::MeshTraining;
using test::odd_mlp;
using test::ranks_of;
using test::run_mesh;

TEST(Mesh, TheForecastKnowsTheNormsThatTravel) {
  for (const auto* strategy : {"sync", "sharded", "independent", "model-averaging:every=1"}) {
    for (const auto* mesh : {"data=3", "tensor=2", "tensor=4", "data=2,tensor=2", "data=2,tensor=2,pipeline=3"}) {
      auto t = test::norm_training("lars:eta=0.1", mesh, strategy);
      t.training.steps = 1;
      const std::uint64_t bytes = bytes_sent(run_mesh(t));
      EXPECT_EQ(bytes, test::forecast_of(t)) << strategy << " " << mesh;
      t.training.optimizer = "sgd";
      const bool shares = strategy == std::string("sharded") || mesh != std::string("data=3");
      EXPECT_EQ(bytes_sent(run_mesh(t)) != bytes, shares) << strategy << " " << mesh;
    }
  }
}

TEST(Mesh, TheForecastOfLossesThatTravelHoldsOnReplicasToo) {
  for (const auto* strategy : {"es:pairs=4", "adacomm:every=1", "population:size=6,survivors=2"}) {
    for (const auto* mesh : {"data=2,tensor=2", "data=2,tensor=2,pipeline=3"}) {
      const MeshTraining t{.mesh = mesh,
                           .model = odd_mlp,
                           .training = {.strategy = strategy, .batch_global = 24, .steps = 2, .own_start = false}};
      const std::uint64_t bytes = bytes_sent(run_mesh(t)), most = test::forecast_of(t);
      EXPECT_LE(bytes, most) << strategy << " " << mesh;
      EXPECT_TRUE(bytes == most || std::string(strategy).starts_with("population")) << strategy << " " << mesh;
    }
  }
}

TEST(Mesh, EachRankSendsTheClosedForm) {
  for (const auto* text : {"tensor=2", "tensor=4", "pipeline=2", "tensor=2,pipeline=2"}) {
    const MeshTraining t{.mesh = text, .accumulate = 2};
    const MeshShape shape = parse_mesh(text).complete(ranks_of(text));
    std::map<int, std::uint64_t> sent;  // by stage
    for (const MeshTrace& trace : run_mesh(t)) sent[trace.place.stage] += trace.bytes_sent;
    for (int stage = 0; stage < shape.pipeline; ++stage) {
      const auto part = shape.part({.stage = stage}, t.accumulate, t.training.batch_global);
      const auto traffic = model::make_model(t.model, test::request_of(t, part))->pass_traffic(t.training.batch_global);
      EXPECT_EQ(sent[stage], forecast_stage({}, shape.tensor, traffic).bytes) << text << " stage " << stage;
    }
  }
}

TEST(Mesh, APairIsSummedOnceForwardAndOnceBackwardButForTheFirst) {
  const auto model = model::make_model(
      "mlp:784-32-24-16-10", {.features = 784, .classes = 10, .part = {.tensor_ranks = 2, .largest_batch = 5}});
  EXPECT_EQ(model->pass_traffic(5).sums, (std::vector<std::size_t>{120, 50, 120}));
  EXPECT_EQ(model->peer_needs().largest_sum_bytes, 120u * 4);
  // Ring: 2(T-1)/T of each from every rank.
  EXPECT_EQ(forecast_stage({}, 2, model->pass_traffic(5)).bytes, 2u * (120 + 50 + 120) * 4);
}

}  // namespace
}  // namespace gradmeter::dataparallel
