// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.hpp"
#include "core/random.hpp"
#include "kernels/host/memory.hpp"
#include "kernels/host/threads.hpp"
#include "model/registry.hpp"
#include "support/accuracy.hpp"
#include "support/mlp.hpp"

namespace gradmeter::model {
namespace {

using Floats = kernels::AlignedVector<float>;

constexpr std::size_t features = 20, classes = 10, samples = 24;

struct Case {
  Case() : inputs(features * samples), labels(samples), mlp({features, 16, classes}), parameters(mlp.element_count()) {
    kernels::set_compute_threads(1);
    const core::Random random(3, 0);
    for (std::size_t i = 0; i < inputs.size(); ++i) inputs[i] = static_cast<float>(random.gaussian(i));
    for (std::size_t i = 0; i < samples; ++i) labels[i] = static_cast<std::int32_t>(random.below(i, classes));
    Floats unused(parameters.size());
    mlp.initialise(queue, {parameters, unused}, 1);
  }
  Batch batch() const { return {inputs, labels}; }
  Floats gradients_in(std::size_t micro_batches) {
    Mlp model(mlp_widths(), {.micro_batches = micro_batches});
    Floats g(parameters.size(), 7.0F);
    outcome = model.pass(queue, {parameters, g}, batch(), [&](std::size_t t) { announced.push_back(t); }).get();
    return g;
  }
  static std::vector<std::size_t> mlp_widths() { return {features, 16, classes}; }

  Floats inputs;
  std::vector<std::int32_t> labels;
  Mlp mlp;
  Floats parameters;
  runtime::HostQueue queue;
  Outcome outcome;
  std::vector<std::size_t> announced;
};

TEST(Accumulate, GivesTheGradientOfTheWholeBatchWithinRounding) {
  Case c;
  const Floats whole = c.gradients_in(1);
  const Outcome of_whole = c.outcome;
  for (const std::size_t k : {2u, 3u, 24u}) {
    EXPECT_LE(test::relative_error(c.gradients_in(k), whole), 1e-6) << k;
    EXPECT_NEAR(c.outcome.loss_sum, of_whole.loss_sum, 1e-5);
    EXPECT_EQ(c.outcome.correct, of_whole.correct);
    EXPECT_EQ(c.outcome.labels, samples);
  }
}

TEST(Accumulate, AddsInOrderAndDividesOnce) {
  Case c;
  const std::size_t k = 3, n = samples / k;
  Floats sum(c.parameters.size()), g(c.parameters.size());
  for (std::size_t i = 0; i < k; ++i) {
    c.mlp.pass(c.queue, {c.parameters, g}, part_of(c.batch(), features, i * n, n), [](std::size_t) {});
    for (std::size_t j = 0; j < sum.size(); ++j) sum[j] = i == 0 ? g[j] : sum[j] + g[j];
  }
  Floats divided_first = sum;
  for (std::size_t j = 0; j < sum.size(); ++j) {
    divided_first[j] = sum[j] / 3;
    sum[j] *= static_cast<float>(1.0 / 3);
  }
  EXPECT_EQ(c.gradients_in(k), sum);
  EXPECT_NE(c.gradients_in(k), divided_first) << "another rounding must show";
}

TEST(Accumulate, AnnouncesEachTensorOnceWhenItIsFinal) {
  Case c;
  Mlp model(Case::mlp_widths(), {.micro_batches = 4});
  Floats g(c.parameters.size()), at_announcement(c.parameters.size());
  std::vector<std::size_t> order;
  model.pass(c.queue, {c.parameters, g}, c.batch(), [&](std::size_t i) {
    order.push_back(i);
    const Tensor& t = model.tensors()[i];
    std::copy_n(g.begin() + std::ptrdiff_t(t.offset), t.count, at_announcement.begin() + std::ptrdiff_t(t.offset));
  });
  EXPECT_EQ(order, (std::vector<std::size_t>{0, 1, 2, 3}));
  EXPECT_EQ(at_announcement, g);
}

TEST(Accumulate, NeedsAnotherSetOfGradientsAndAMicroBatchsActivations) {
  const Case c;
  const Mlp model(Case::mlp_widths(), {.micro_batches = 4});
  EXPECT_EQ(model.workspace_bytes(samples), c.mlp.workspace_bytes(6) + 4 * c.mlp.element_count());
}

TEST(Accumulate, ABatchThatDoesNotDivideIsRefused) {
  Case c;
  EXPECT_THROW((void)c.gradients_in(5), core::UsageError);
  EXPECT_THROW((void)c.gradients_in(48), core::UsageError);
}

TEST(Accumulate, AModelByItsNameDoesSoWhateverTheOrderOfStages) {
  for (const auto order : {PipelineOrder::one_f_one_b, PipelineOrder::gpipe}) {
    const auto model =
        make_model("mlp:20-16-10", {.features = 20, .classes = 10, .part = {.micro_batches = 4, .order = order}});
    EXPECT_EQ(model->name(), "mlp:20-16-10");
    EXPECT_EQ(model->workspace_bytes(samples), Mlp(Case::mlp_widths(), {.micro_batches = 4}).workspace_bytes(samples));
  }
}

}  // namespace
}  // namespace gradmeter::model
