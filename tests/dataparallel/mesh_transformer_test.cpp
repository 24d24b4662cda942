// SPDX-License-Identifier: Apache-2.0
// Transformers on tensor ranks: attention shared by heads, feed-forward layers by units, all else whole on every rank.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "core/error.hpp"
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

constexpr std::size_t hidden = 12, layers = 2, steps_of_a_sentence = 6;
constexpr const char* small_transformer = "transformer-lm:ff=20,heads=4,hidden=12";

MeshTraining transformer_on(std::string mesh, std::size_t accumulate = 1, std::string model = small_transformer) {
  return {.mesh = std::move(mesh),
          .model = std::move(model),
          .accumulate = accumulate,
          .training = {.batch_global = 16, .steps = 100, .step_size = 0.1F, .own_start = false}};
}

MeshTraining few_steps(MeshTraining t, int steps) {
  t.training.steps = steps;
  return t;
}

/// Those that tensor ranks cut: the products within blocks, but for the biases that are added behind a sum.
bool is_cut(const std::string& name) {
  const bool in_block = name > "layer3" && name < "layer7";
  return in_block && (name.ends_with(".2.weight") || name.ends_with(".2.bias") || name.ends_with(".4.weight"));
}

void expect_one_transformer_curve(const std::string& model, const std::vector<std::string>& meshes) {
  const auto one = run_mesh(transformer_on("data", 1, model));
  ASSERT_LT(losses_of(one).back(), 0.9 * losses_of(one).front()) << "the run must learn, or it shows nothing";
  for (const std::string& mesh : meshes) {
    if (test::sanitized && mesh != meshes.front()) continue;
    const auto many = run_mesh(transformer_on(mesh, 2, model));
    EXPECT_LT(largest_difference(losses_of(many), losses_of(one)), 1e-5) << model << " " << mesh;
    const int last = parse_mesh(mesh).pipeline - 1;
    for (const MeshTrace& t : many) {
      const bool reports = t.place.tensor == 0 && t.place.stage == last;
      EXPECT_EQ(t.validation.labels, reports ? one[0].validation.labels : 0) << mesh;
      EXPECT_NEAR(t.validation.mean_loss(), reports ? one[0].validation.mean_loss() : 0, 1e-5) << mesh;
    }
  }
}

TEST(TransformerOnTensorRanks, HasTheLossesOfOneRankFor100Steps) {
  expect_one_transformer_curve(small_transformer, {"tensor=2", "tensor=4", "data=2,tensor=2", "tensor=2,pipeline=2",
                                                   "data=2,tensor=2,pipeline=2", "tensor=2,pipeline=3,schedule=gpipe"});
}

TEST(TransformerOnTensorRanks, HasThemWithASharedWeightToo) {
  expect_one_transformer_curve("transformer-lm:ff=20,heads=4,hidden=12,tied=1", {"tensor=2", "data=2,tensor=2"});
}

/// By place in the whole model: each rank's gradients in the last step, and how many ranks have each.
struct WholeGradients {
  std::vector<float> values;
  std::vector<int> ranks;
};
WholeGradients assembled(const MeshTraining& t) {
  const auto traces = run_mesh(t);
  const auto whole = model::make_model(t.model, test::request_of(t, {}));
  WholeGradients all{std::vector<float>(whole->element_count()), std::vector<int>(whole->element_count())};
  const auto ranks = static_cast<std::size_t>(parse_mesh(t.mesh).tensor);
  for (std::size_t r = 0; r < ranks; ++r) {
    const model::Part part{.tensor_rank = r, .tensor_ranks = ranks, .largest_batch = 16};
    const auto mine = model::make_model(t.model, test::request_of(t, part));
    for (std::size_t i = 0; i < mine->tensors().size(); ++i)
      for (std::size_t k = 0; k < mine->tensors()[i].count; ++k) {
        const std::size_t at = mine->tensors()[i].whole.of(k);
        all.values[at] = traces[r].gradients[i][k];
        ++all.ranks[at];
      }
  }
  return all;
}

TEST(TransformerOnTensorRanks, HasTheGradientsOfTheWholeModelAtTheirPlaces) {
  const MeshTraining one = few_steps(transformer_on("data"), 1);
  const WholeGradients wanted = assembled(one);
  double largest = 0;
  for (const float g : wanted.values) largest = std::max(largest, std::fabs(static_cast<double>(g)));
  for (const auto* const mesh : {"tensor=2", "tensor=4"}) {
    const WholeGradients found = assembled(few_steps(transformer_on(mesh), 1));
    EXPECT_LT(largest_difference(found.values, wanted.values), 1e-6 * largest) << mesh;
    const auto whole = model::make_model(one.model, test::request_of(one, {}));
    for (const model::Tensor& t : whole->tensors())
      for (std::size_t i = 0; i < t.count; ++i)
        ASSERT_EQ(found.ranks[t.offset + i], is_cut(t.name) ? 1 : parse_mesh(mesh).tensor) << t.name << " " << i;
  }
}

TEST(TransformerOnTensorRanks, HasEqualGradientsOfWhatAllOfThemHold) {
  for (const auto* const model : {small_transformer, "transformer-lm:ff=20,heads=4,hidden=12,tied=1"}) {
    const auto traces = run_mesh(few_steps(transformer_on("tensor=2", 2, model), 12));
    for (std::size_t i = 0; i < traces[0].names.size(); ++i)
      EXPECT_EQ(traces[0].gradients[i] == traces[1].gradients[i], !is_cut(traces[0].names[i])) << traces[0].names[i];
  }
}

TEST(TransformerOnTensorRanks, AForgottenSumShows) {
  const auto one = losses_of(run_mesh(few_steps(transformer_on("data"), 20)));
  for (std::size_t forgotten = 0; forgotten < 4 * layers; ++forgotten) {  // two forward and two backward a block
    MeshTraining t = few_steps(transformer_on("tensor=2"), 20);
    t.forgotten = forgotten;
    EXPECT_GT(largest_difference(losses_of(run_mesh(t)), one), 1e-4) << forgotten;
  }
}

TEST(TransformerOnTensorRanks, TheWrongShareOfHeadsShows) {
  MeshTraining t = few_steps(transformer_on("tensor=2"), 20);
  const auto one = losses_of(run_mesh(few_steps(transformer_on("data"), 20)));
  t.wrong_shard = true;
  EXPECT_GT(largest_difference(losses_of(run_mesh(t)), one), 1e-3);
}

TEST(TransformerOnTensorRanks, SumsTwiceForwardAndTwiceBackwardABlock) {
  constexpr std::size_t samples = 5;
  const MeshTraining t = few_steps(transformer_on("tensor=2"), 2);
  const auto m = model::make_model(t.model, test::request_of(t, {.tensor_ranks = 2, .largest_batch = samples}));
  constexpr std::size_t each = samples * steps_of_a_sentence * hidden;
  EXPECT_EQ(m->pass_traffic(samples).sums, std::vector<std::size_t>(4 * layers, each));
  EXPECT_EQ(m->forward_traffic(samples).sums, std::vector<std::size_t>(2 * layers, each));
  EXPECT_EQ(m->peer_needs().largest_sum_bytes, each * sizeof(float));
  for (const auto* const mesh : {"tensor=2", "data=2,tensor=2", "tensor=2,pipeline=2"}) {
    for (const auto* const strategy : {"sync", "sharded", "es:pairs=2"}) {
      MeshTraining on = few_steps(transformer_on(mesh, 2), 2);
      on.training.strategy = strategy;
      EXPECT_EQ(bytes_sent(run_mesh(on)), test::forecast_of(on)) << mesh << " " << strategy;
    }
  }
}

TEST(TransformerOnTensorRanks, TakesNormsAndDrawsNoiseAsOneRankDoes) {
  const auto curve = [](const char* mesh, const char* strategy, const char* rule, float step_size) {
    MeshTraining t = few_steps(transformer_on(mesh), 8);
    t.training.strategy = strategy, t.training.optimizer = rule, t.training.step_size = step_size;
    return losses_of(run_mesh(t));
  };
  for (const auto* const mesh : {"tensor=2", "tensor=2,pipeline=2"}) {
    EXPECT_LT(largest_difference(curve(mesh, "sync", "lamb", 0.01F), curve("data", "sync", "lamb", 0.01F)), 1e-5)
        << mesh;
    EXPECT_LT(largest_difference(curve(mesh, "es:pairs=4", "sgd", 0.002F), curve("data", "es:pairs=4", "sgd", 0.002F)),
              1e-5)
        << mesh;
  }
}

}  // namespace
}  // namespace gradmeter::dataparallel
