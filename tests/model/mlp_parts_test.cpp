// SPDX-License-Identifier: Apache-2.0
#include "support/mlp.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "core/error.hpp"
#include "kernels/host/memory.hpp"
#include "model/registry.hpp"

namespace gradmeter::model {
namespace {

using Floats = kernels::AlignedVector<float>;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string refusal(std::string_view model, const Part& part) {
  try {
    (void)make_model(model, {.features = 784, .classes = 10, .part = part});
  } catch (const core::UsageError& e) {
    return e.what();
  }
  return "no refusal";
}

Floats first_weights(const Model& m, std::uint64_t seed) {
  Floats parameters(m.element_count()), gradients(m.element_count());
  runtime::HostQueue queue;
  m.initialise(queue, {parameters, gradients}, seed);
  return parameters;
}

TEST(BalancedRuns, TheHeaviestIsAsLightAsItCanBe) {
  EXPECT_THAT(balanced_runs(std::vector<double>{1, 1, 1, 1}, 2), ElementsAre(2, 4));
  EXPECT_THAT(balanced_runs(std::vector<double>{9, 1, 1, 1}, 2), ElementsAre(1, 4));
  EXPECT_THAT(balanced_runs(std::vector<double>{1, 2, 3, 4, 5}, 3), ElementsAre(3, 4, 5));
  EXPECT_THAT(balanced_runs(std::vector<double>{5, 1, 1}, 3), ElementsAre(1, 2, 3));
}

/// Where element (o, i) of the first or second layer of a pair begins to be this rank's: by outputs, then by inputs.
std::size_t place_in_layer(std::size_t layer, std::size_t rank, const Tensor& part, std::size_t whole_in,
                           std::size_t at) {
  const bool by_outputs = layer % 2 == 0;
  if (part.shape.size() == 1) return by_outputs ? rank * part.count + at : at;
  const std::size_t in = part.shape[1], o = at / in, i = at % in;
  return by_outputs ? (rank * part.shape[0] + o) * whole_in + i : o * whole_in + rank * in + i;
}

/// Every element of the whole model's weights, by where the parts must have theirs.
TEST(MlpParts, HaveTheWholeModelsFirstWeightsAndTogetherAllOfThem) {
  const std::vector<std::size_t> widths{12, 8, 6, 4, 10};
  const Mlp whole(widths);
  const Floats all = first_weights(whole, 7);
  for (const std::size_t stages : {1u, 2u, 4u}) {
    std::vector<int> covered(all.size(), 0);
    for (std::size_t rank = 0; rank < 2 * stages; ++rank) {
      const Mlp part(widths, {.tensor_rank = rank % 2, .tensor_ranks = 2, .stage = rank / 2, .stages = stages});
      const Floats mine = first_weights(part, 7);
      for (const Tensor& t : part.tensors()) {
        const auto of_whole = std::ranges::find(whole.tensors(), t.name, &Tensor::name);
        ASSERT_NE(of_whole, whole.tensors().end());
        const std::size_t layer = static_cast<std::size_t>(t.name[5] - '1');
        for (std::size_t i = 0; i < t.count; ++i) {
          const std::size_t at = of_whole->offset + place_in_layer(layer, rank % 2, t, widths[layer], i);
          ASSERT_EQ(t.whole.of(i), at) << t.name << " " << i;
          EXPECT_EQ(mine[t.offset + i], all[at]);
          ++covered[at];
        }
        EXPECT_EQ(t.is_part, t.shape.size() == 2 || layer % 2 == 0) << t.name;
      }
    }
    for (const Tensor& t : whole.tensors())
      for (std::size_t i = 0; i < t.count; ++i)  // biases behind a sum are on both ranks
        EXPECT_EQ(covered[t.offset + i], t.shape.size() == 1 && (t.name[5] - '1') % 2 == 1 ? 2 : 1) << t.name;
  }
}

TEST(MlpParts, AreCutInPairsAndTheOddLastLayerIsWhole) {
  const Mlp odd({12, 8, 6, 10}, {.tensor_ranks = 2});
  EXPECT_EQ(odd.tensors()[0].shape, (std::vector<std::size_t>{10, 6}));
  EXPECT_EQ(odd.tensors()[2].shape, (std::vector<std::size_t>{6, 4})) << "half its inputs";
  EXPECT_EQ(odd.tensors()[3].shape, (std::vector<std::size_t>{6})) << "the whole bias";
  EXPECT_EQ(odd.tensors()[4].shape, (std::vector<std::size_t>{4, 12})) << "half its outputs";
  EXPECT_EQ(odd.tensors()[5].shape, (std::vector<std::size_t>{4})) << "and their biases";
}

TEST(MlpParts, WhatCannotBeSplitIsRefused) {
  EXPECT_THAT(refusal("mlp:784-30-10", {.tensor_ranks = 4}), HasSubstr("a layer of width 30, which 4 tensor ranks"));
  EXPECT_EQ(refusal("mlp:784-32-10", {.tensor_ranks = 4}), "no refusal") << "ten classes need not divide";
  EXPECT_THAT(refusal("mlp:784-10", {.tensor_ranks = 2}), HasSubstr("no pair of dense layers, in fp32"));
  EXPECT_THAT(refusal("cnn:hidden=15", {.tensor_ranks = 2}), HasSubstr("a layer of width 15, which 2 tensor ranks"));
  EXPECT_EQ(refusal("cnn", {.tensor_ranks = 2}), "no refusal");
  for (const auto* const recurrent : {"lstm", "gru", "rnn"})
    EXPECT_THAT(refusal(recurrent, {.tensor_ranks = 2}), HasSubstr("leave tensor out of the mesh"));
  EXPECT_THAT(refusal("lstm", {.stages = 3}), HasSubstr("2 layers, too few for 3 pipeline stages"));
  EXPECT_THAT(refusal("resnet50", {.tensor_ranks = 2}), HasSubstr("does not say which layers read the same numbers"));
  EXPECT_EQ(refusal("resnet50", {.stages = 2}), "no refusal");
  EXPECT_EQ(refusal("gpt2_small", {.stages = 4}), "no refusal");
  EXPECT_THAT(refusal("bert_base", {.stages = 2}), HasSubstr("shares a weight with embeddings.word on another stage"));
  EXPECT_THAT(refusal("mlp:784-32-10", {.stages = 3}), HasSubstr("2 layers, too few for 3 pipeline stages"));
  EXPECT_THAT(refusal("mlp", {.micro_batches = 0}), HasSubstr("0 micro-batches"));
}

TEST(MlpParts, WithoutPeersItHasSizesButDoesNotRun) {
  const auto m =
      make_model("mlp:784-32-10", {.features = 784, .classes = 10, .part = {.tensor_ranks = 2, .largest_batch = 4}});
  EXPECT_GT(m->peer_needs().memory_bytes, 0u);
  Floats p(m->element_count()), inputs(std::size_t{784} * 4);
  const std::vector<std::int32_t> labels(4);
  runtime::HostQueue queue;
  EXPECT_THROW((void)m->forward(queue, {p, p}, {inputs, labels}), std::logic_error);
}

/// All floats that a part keeps of its activations.
std::size_t activation_floats(const Part& part, std::size_t batch) {
  Part p = part;
  p.largest_batch = batch;
  const Mlp m({64, 64, 64, 64, 64}, p);
  const std::size_t sums = p.micro_batches > 1 ? m.element_count() : 0;
  return (m.workspace_bytes(batch) + m.peer_needs().memory_bytes) / sizeof(float) - sums;
}

TEST(MlpParts, ActivationMemoryIsThatOfTheMicroBatchesInFlight) {
  constexpr std::size_t samples = 16;
  for (const std::size_t m : {4u, 8u, 16u}) {
    const Part eager{.stage = 1, .stages = 4, .micro_batches = m};
    Part gpipe = eager;
    gpipe.order = PipelineOrder::gpipe;
    // Input, output and the gradients by both, of 16 × 64 each, for each micro-batch in flight.
    EXPECT_EQ(activation_floats(eager, m * samples), std::size_t{3} * 4 * samples * 64)
        << "stages less its own place, whatever m";
    EXPECT_EQ(activation_floats(gpipe, m * samples), m * 4 * samples * 64);
  }
}

TEST(MlpParts, FlopsOfAllPartsAreTheWholeModels) {
  const std::vector<std::size_t> widths{12, 8, 6, 4, 10};
  double sum = 0;
  for (std::size_t rank = 0; rank < 4; ++rank)
    sum += Mlp(widths, {.tensor_rank = rank % 2, .tensor_ranks = 2, .stage = rank / 2, .stages = 2}).step_flops(5);
  EXPECT_EQ(sum, Mlp(widths).step_flops(5));
}

}  // namespace
}  // namespace gradmeter::model
