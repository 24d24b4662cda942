// SPDX-License-Identifier: Apache-2.0
// The matrix products that a model names are those that it runs, because limits are computed from them.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "kernels/problems/problem.hpp"
#include "model/mlp_net.hpp"
#include "model/registry.hpp"

namespace gradmeter::model {
namespace {

double flops(const std::vector<RepeatedProblem>& products) {
  double sum = 0;
  for (const RepeatedProblem& p : products) sum += static_cast<double>(p.times) * kernels::run_flops(p.problem);
  return sum;
}

std::vector<Part> parts() {
  std::vector<Part> all{{}, {.micro_batches = 4}};
  for (std::size_t tensor_rank : {0u, 1u}) {
    const std::size_t stage_of_two = tensor_rank;
    all.push_back({.stage = stage_of_two, .stages = 2, .micro_batches = 2, .largest_batch = 16});
    all.push_back({.tensor_rank = tensor_rank, .tensor_ranks = 2, .largest_batch = 16});
    all.push_back({.tensor_rank = tensor_rank, .tensor_ranks = 2, .micro_batches = 4, .largest_batch = 16});
    for (std::size_t stage : {0u, 1u})
      all.push_back({.tensor_rank = tensor_rank,
                     .tensor_ranks = 2,
                     .stage = stage,
                     .stages = 2,
                     .micro_batches = 2,
                     .largest_batch = 16});
  }
  return all;
}

TEST(Products, OfAPassHaveTheFlopsOfAStep) {
  for (const ModelEntry& entry : model_table()) {
    for (const Part& part : parts()) {
      if (entry.name != "mlp" && entry.name != "cnn" && part.tensor_ranks > 1) continue;
      ModelRequest request{.features = 784, .classes = 10, .part = part};
      if (entry.reads_text) request.features = request.labels = 20;
      const auto model = make_model(entry.name, request);
      EXPECT_GT(model->step_flops(16), 0);
      EXPECT_EQ(flops(model->pass_problems(16)), model->step_flops(16)) << model->name();
    }
  }
}

TEST(Products, OfAForwardPassAreThoseOfTheWeightsHeld) {
  for (const Part& part : parts()) {  // the other models' weights are used more than once
    const auto model = make_model("mlp", {.features = 784, .classes = 10, .part = part});
    for (const std::size_t samples : {5u, 16u, 40u}) {  // less, as many and more than a split model takes at once
      double weights = 0;
      for (const Tensor& t : model->tensors()) weights += t.shape.size() == 2 ? static_cast<double>(t.count) : 0;
      EXPECT_EQ(flops(model->forward_problems(samples)), 2 * static_cast<double>(samples) * weights);
    }
  }
}

using Counts = std::map<std::pair<double, double>, std::size_t>;  ///< runs by (FLOP, bytes)

/// Counts the products that are asked of it.
struct ProductCounter final : Queue {
  void submit(std::string_view label, Cost cost, const runtime::Work& work) override {
    if (label.ends_with(".gemm")) ++counts[{cost.flops, cost.bytes}];
    work();
  }
  Counts counts;
};

Counts counts_of(const std::vector<RepeatedProblem>& products) {
  Counts c;
  for (const RepeatedProblem& p : products) c[{kernels::run_flops(p.problem), kernels::bytes(p.problem)}] += p.times;
  return c;
}

TEST(Products, AreThoseThatAreRun) {
  for (const std::size_t micro_batches : {1u, 4u}) {
    const auto model =
        make_model("mlp:20-30-25-10", {.features = 20, .classes = 10, .part = {.micro_batches = micro_batches}});
    Floats parameters(model->element_count()), gradients(model->element_count());
    const Buffers buffers{parameters, gradients};
    runtime::HostQueue queue;
    model->initialise(queue, buffers, 1);
    const Data data = random_data(8, 20, 10);
    ProductCounter pass, forward;
    model->pass(pass, buffers, data.batch(), [](std::size_t) {});
    model->forward(forward, buffers, data.batch());
    EXPECT_EQ(pass.counts, counts_of(model->pass_problems(8)));
    EXPECT_EQ(forward.counts, counts_of(model->forward_problems(8)));
  }
}

}  // namespace
}  // namespace gradmeter::model
