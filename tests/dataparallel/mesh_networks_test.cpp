// SPDX-License-Identifier: Apache-2.0
// Networks of layers on meshes: replicas, and stages that are runs of their layers.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <fstream>
#include <map>
#include <ostream>
#include <string>
#include <vector>

#include "core/format.hpp"
#include "dataparallel/mesh.hpp"
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

struct StagedNetwork {
  std::string model;
  float step_size;
  kernels::Precision precision = kernels::Precision::fp32;
  MeshTraining training(std::string mesh, std::size_t accumulate = 1) const {
    return {.mesh = std::move(mesh),
            .model = model,
            .accumulate = accumulate,
            .precision = precision,
            .training = {.batch_global = 16, .steps = 40, .step_size = step_size, .own_start = false}};
  }
  friend std::ostream& operator<<(std::ostream& to, const StagedNetwork& n) { return to << n.model; }
};

std::string name_of_network(const ::testing::TestParamInfo<StagedNetwork>& info) {
  std::string n = info.param.model + "_" + std::string(kernels::name(info.param.precision));
  std::ranges::replace_if(
      n, [](char c) { return !std::isalnum(static_cast<unsigned char>(c)); }, '_');
  return n;
}

class NetworkOnMesh : public ::testing::TestWithParam<StagedNetwork> {};

void expect_one_curve(const StagedNetwork& network) {
  const auto one = losses_of(run_mesh(network.training("data=1")));
  EXPECT_LT(one.back(), 0.98 * one.front()) << "the run must learn, or it shows nothing";
  for (const auto* const mesh : {"data=2", "data=4"})
    EXPECT_LT(largest_difference(losses_of(run_mesh(network.training(mesh))), one), 1e-5) << network << " " << mesh;
  MeshTraining wrong = network.training("data=2");
  wrong.training.strategy = "independent";
  EXPECT_GT(largest_difference(losses_of(run_mesh(wrong)), one), 1e-5) << "without an exchange they differ";
}

TEST_P(NetworkOnMesh, HasOneCurveOnAnyNumberOfRanks) { expect_one_curve(GetParam()); }

TEST(NetworkWithASharedWeight, HasOneCurveOnAnyNumberOfRanks) {
  expect_one_curve({"lstm-lm:hidden=12,tied=1", 0.1F});
  expect_one_curve({"transformer-lm:ff=20,heads=3,hidden=12,tied=1", 0.1F});
}

TEST_P(NetworkOnMesh, HasTheLossesOfOneRankInStages) {
  const auto one = run_mesh(GetParam().training("data=1"));
  const std::size_t labels = one[0].validation.labels;
  for (const auto* const mesh : {"pipeline=2", "pipeline=2,schedule=gpipe", "data=2,pipeline=2"}) {
    const auto many = run_mesh(GetParam().training(mesh, 4));
    EXPECT_LT(largest_difference(losses_of(many), losses_of(one)), 1e-5) << mesh;
    for (const MeshTrace& t : many) {
      EXPECT_EQ(t.validation.labels, t.place.stage == 1 ? labels : 0) << mesh;
      if (t.place.stage == 0) continue;
      EXPECT_NEAR(t.validation.loss_sum, one[0].validation.loss_sum, 1e-5 * static_cast<double>(labels)) << mesh;
    }
  }
}

void expect_bits_of_accumulation(const StagedNetwork& network) {
  const auto whole = test::request_of(network.training("data"), {});
  std::vector<std::string> meshes{"pipeline=2", "pipeline=2,schedule=gpipe"};
  if (model::make_model(network.model, whole)->tensors().size() > 5) meshes.emplace_back("pipeline=3");
  for (const std::size_t k : {1u, 4u}) {
    const auto one = run_mesh(network.training("data", k));
    for (const std::string& mesh : meshes) {
      const auto many = run_mesh(network.training(mesh, k));
      EXPECT_EQ(losses_of(many), losses_of(one)) << mesh;
      // Stages come in the order of layers, tensors in the other.
      std::vector<float> weights;
      for (std::size_t s = many.size(); s-- > 0;)
        weights.insert(weights.end(), many[s].weights.begin(), many[s].weights.end());
      EXPECT_EQ(weights, one[0].weights) << mesh << ", " << k << " micro-batches";
    }
  }
  EXPECT_NE(run_mesh(network.training("data", 4))[0].weights, run_mesh(network.training("data"))[0].weights)
      << "sums in another order must show";
}

TEST_P(NetworkOnMesh, HasTheBitsOfOneRankThatAccumulates) { expect_bits_of_accumulation(GetParam()); }
TEST(NetworkInLogarithms, HasTheBitsOfOneRankThatAccumulates) {
  expect_bits_of_accumulation({"mlp:784-32-24-10", 0.02F, kernels::Precision::lns16_linear});
}

/// A layer table in a file.
std::string layer_table(std::string_view name, std::string_view rows) {
  std::string path = fmt::format("{}/{}.csv", ::testing::TempDir(), name);
  std::ofstream(path) << "layer,kind,shape,params,forward_flops_per_sample,input,stride,padding,groups,steps,heads\n"
                      << rows;
  return path;
}

TEST(LayerTableOnMesh, HasTheBitsOfOneRankThatAccumulates) {
  // On one rank a layer reads what the one before has written as it lies, but a stage sends plain numbers. So the sizes
  // are those at which both layouts are one. In bf16 an embedding gives fp32, which the next layer does not read.
  const std::string images = layer_table("images",
                                         "c1,conv,16x16x3x3,2304,294912,16x8x8,1,1,,,\n"
                                         "c1b,bias,16,16,0,,,,,,\n"
                                         "c2,conv,16x16x3x3,2304,294912,16x8x8,1,1,,,\n"
                                         "c2b,bias,16,16,0,,,,,,\n"
                                         "c3,conv,16x16x3x3,2304,294912,16x8x8,1,1,,,\n"
                                         "c3b,bias,16,16,0,,,,,,\n"),
                    products = layer_table("products",
                                           "f1,linear,64x64,4096,8192,64,,,,,\n"
                                           "f1b,bias,64,64,0,,,,,,\n"
                                           "f2,linear,64x64,4096,8192,64,,,,,\n"
                                           "f2b,bias,64,64,0,,,,,,\n"
                                           "f3,linear,64x64,4096,8192,64,,,,,\n"
                                           "f3b,bias,64,64,0,,,,,,\n"),
                    words = layer_table("words",
                                        "e,embedding,40x24,960,0,,,,,6,\n"
                                        "f1,linear,24x24,576,6912,24,,,,6,\n"
                                        "f2,linear,24x24,576,6912,24,,,,6,\n"
                                        "f2b,bias,24,24,0,,,,,,\n"
                                        "f3,linear,24x24,576,6912,24,,,,6,\n"
                                        "f3b,bias,24,24,0,,,,,,\n"),
                    // The first stage has both layers that share a weight, and it is not the first layer's.
      tied = layer_table("tied",
                         "position,embedding,6x24,144,0,,,,,6,\n"
                         "word,embedding,40x24,960,0,,,,,6,\n"
                         "to_words,linear_tied,40x24,0,11520,24,,,,6,\n"
                         "f1,linear,24x40,960,11520,40,,,,6,\n"
                         "f1b,bias,24,24,0,,,,,,\n"
                         "f2,linear,24x24,576,6912,24,,,,6,\n"
                         "f2b,bias,24,24,0,,,,,,\n"
                         "f3,linear,24x24,576,6912,24,,,,6,\n");
  for (const std::string& model : {images, products, words, tied}) expect_bits_of_accumulation({model, 0.05F});
  for (const std::string& model : {images, products})
    expect_bits_of_accumulation({model, 0.05F, kernels::Precision::bf16});
}

TEST(LayerTableOnMesh, SendsWhatIsForecastAlsoWherePoolingIsSkipped) {
  const StagedNetwork network{layer_table("pooled",
                                          "c1,conv,16x3x3x3,432,55296,3x8x8,1,1,,,\n"
                                          "c2,conv,32x16x3x3,4608,36864,16x4x4,2,1,,,\n"
                                          "q,linear,24x16,384,4608,16,,,,6,\n"
                                          "a,attention_matmul,-,0,3456,24,,,,6,4\n"
                                          "f,linear,24x24,576,6912,24,,,,6,\n"),
                              0.02F};
  for (const auto* const mesh : {"pipeline=2", "pipeline=5", "data=2,pipeline=3,schedule=gpipe"}) {
    MeshTraining t = network.training(mesh, 2);
    t.training.steps = 2;
    EXPECT_EQ(bytes_sent(run_mesh(t)), test::forecast_of(t)) << mesh;
  }
}

TEST_P(NetworkOnMesh, SendsWhatIsForecast) {
  for (const auto* const mesh : {"pipeline=2", "data=2,pipeline=2,schedule=gpipe"}) {
    for (const auto* const strategy : {"sync", "sharded", "es:pairs=2"}) {
      MeshTraining t = GetParam().training(mesh, 2);
      t.training.strategy = strategy, t.training.steps = 2;
      EXPECT_EQ(bytes_sent(run_mesh(t)), test::forecast_of(t)) << mesh << " " << strategy;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Virtual, NetworkOnMesh,
                         ::testing::Values(StagedNetwork{"cnn:convolutions=2,filters=4,hidden=16", 0.02F},
                                           StagedNetwork{"lstm:hidden=12,layers=1", 0.1F},
                                           StagedNetwork{"gru:hidden=10,layers=2", 0.1F},
                                           StagedNetwork{"rnn:hidden=12,layers=1", 0.02F},
                                           StagedNetwork{"lstm-lm:hidden=12,layers=2", 0.1F},
                                           StagedNetwork{"gru-lm:hidden=10,layers=1", 0.1F},
                                           StagedNetwork{"rnn-lm:hidden=10,layers=1", 0.1F},
                                           StagedNetwork{"transformer-lm:ff=20,heads=3,hidden=12", 0.1F}),
                         name_of_network);

TEST(CnnOnTensorRanks, HasTheLossesOfOneRank) {
  const StagedNetwork cnn{"cnn:convolutions=2,filters=4,hidden=16", 0.02F};
  const auto one = losses_of(run_mesh(cnn.training("data")));
  for (const auto* const mesh :
       {"tensor=2", "tensor=4", "data=2,tensor=2", "tensor=2,pipeline=2", "tensor=2,pipeline=4"})
    EXPECT_LT(largest_difference(losses_of(run_mesh(cnn.training(mesh, 2))), one), 1e-5) << mesh;
  // A sum forward, of logits, and one backward, of what the convolutions gave.
  for (const std::size_t forgotten : {0U, 1U}) {
    MeshTraining t = cnn.training("tensor=2");
    t.forgotten = forgotten;
    EXPECT_GT(largest_difference(losses_of(run_mesh(t)), one), 1e-3) << forgotten;
  }
}

TEST(CnnOnTensorRanks, SumsItsLogitsAndTheGradientByItsImages) {
  const MeshTraining t{.mesh = "tensor=2", .model = "cnn:convolutions=2,filters=4,hidden=16"};
  const auto model = model::make_model(t.model, test::request_of(t, {.tensor_ranks = 2, .largest_batch = 5}));
  EXPECT_EQ(model->pass_traffic(5).sums, (std::vector<std::size_t>{5 * 10, 5 * 392}));
  EXPECT_EQ(model->peer_needs().largest_sum_bytes, 5U * 392 * 4);
  EXPECT_EQ(bytes_sent(run_mesh(t)), test::forecast_of(t));
}

TEST(CnnOnTensorRanks, HasEqualGradientsOfWhatAllOfThemHold) {
  const auto traces =
      run_mesh({.mesh = "tensor=2", .model = "cnn:convolutions=2,filters=4,hidden=16", .accumulate = 2});
  for (std::size_t i = 0; i < traces[0].names.size(); ++i) {
    const std::string& name = traces[0].names[i];
    const bool is_shared = name.starts_with("layer1") || name.starts_with("layer2") || name == "layer4.bias";
    EXPECT_EQ(traces[0].gradients[i] == traces[1].gradients[i], is_shared) << name;
  }
}

/// By stage, the floats of a sample that its messages carry in a pass.
using Borders = std::vector<std::size_t>;

TEST(StagedNetworks, SendTheActivationsOfTheirBordersAndTheGradientsByThem) {
  // The heaviest stage is as light as it can be. cnn: convolutions of 39,200 and 28,224 FLOP, dense layers of 12,544
  // and 320; a language model's embedding has none.
  const std::size_t samples = 8, micro_batches = 2;
  const std::map<std::string, std::pair<std::string, Borders>> expected{
      {"cnn pipeline=2", {"cnn:convolutions=2,filters=4,hidden=16", {784, 784}}},
      {"cnn pipeline=3", {"cnn:convolutions=2,filters=4,hidden=16", {784, 784 + 392, 392}}},
      {"lstm pipeline=2", {"lstm:hidden=12,layers=1", {12, 12}}},
      {"lstm-lm pipeline=3", {"lstm-lm:hidden=12,layers=2", {72, 72 + 72, 72}}}};
  for (const auto& [text, network] : expected) {
    const auto& [model, borders] = network;
    const MeshTraining t{.mesh = text.substr(text.find(' ') + 1),
                         .model = model,
                         .accumulate = micro_batches,
                         .training = {.batch_global = samples, .steps = 1, .own_start = false}};
    const auto traces = run_mesh(t);
    for (std::size_t stage = 0; stage < borders.size(); ++stage)
      EXPECT_EQ(traces[stage].bytes_sent, samples * borders[stage] * sizeof(float)) << text << " stage " << stage;
  }
}

TEST(StagedNetworks, KeepTheActivationsOfTheMicroBatchesInFlight) {
  const auto bytes = [](std::size_t stage, std::size_t micro_batches, model::PipelineOrder order) {
    const model::Part part{.stage = stage,
                           .stages = 3,
                           .micro_batches = micro_batches,
                           .order = order,
                           .largest_batch = 16 * micro_batches};
    const auto m =
        model::make_model("lstm-lm:hidden=16,layers=3", {.features = 6, .classes = 16, .labels = 6, .part = part});
    const std::size_t sums = micro_batches > 1 ? m->element_count() * sizeof(float) : 0;
    return m->workspace_bytes(part.largest_batch) + m->peer_needs().memory_bytes - sums;
  };
  // Of the second stage, one recurrent layer: input, output and the gradients by both [16 samples × 6 steps × 16].
  const std::size_t each = std::size_t{4} * 16 * 6 * 16 * sizeof(float);
  for (const std::size_t m : {2u, 4u, 8u}) {
    EXPECT_EQ(bytes(1, m, model::PipelineOrder::one_f_one_b), 2 * each) << m;
    EXPECT_EQ(bytes(1, m, model::PipelineOrder::gpipe), m * each) << m;
  }
}

}  // namespace
}  // namespace gradmeter::dataparallel
