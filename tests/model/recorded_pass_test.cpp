// SPDX-License-Identifier: Apache-2.0
// Passes that are submitted again against passes that ask the layers each time: inputs that move from pass to pass are
// never recorded.
#include "model/network/pipeline.hpp"

#include <gtest/gtest.h>

#include <array>
#include <string>

#include "core/random.hpp"
#include "kernels/host/library.hpp"
#include "kernels/host/threads.hpp"
#include "model/registry.hpp"

namespace gradmeter::model {
namespace {

/// Keeps what it is given, in the order of its submission.
class LabelQueue final : public runtime::Queue {
 public:
  void submit(std::string_view label, runtime::Cost cost, const runtime::Work& work) override {
    labels.emplace_back(label);
    flops += cost.flops;
    work();
  }
  std::vector<std::string> labels;
  double flops = 0;
};

struct Replica {
  explicit Replica(const std::string& name)
      : model(make_model(name, {.features = 784, .classes = 10})),
        parameters(model->element_count()),
        gradients(model->element_count()) {
    model->initialise(queue, {parameters, gradients}, 5);
  }

  /// A pass over samples of this step's own, in one of two places, and an update.
  Outcome step(std::size_t number, std::size_t samples, std::size_t place) {
    inputs[place].resize(32 * 784), labels[place].resize(32);
    const core::Random random(11, number);
    const std::span x = std::span(inputs[place]).first(samples * 784);
    const std::span y = std::span(labels[place]).first(samples);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(random.uniform(i));
    for (std::size_t i = 0; i < samples; ++i) y[i] = static_cast<std::int32_t>((number + 3 * i) % 10);
    queue.labels.clear(), queue.flops = 0, ready.clear();
    std::ranges::fill(gradients, 7.0F);  // what is there is to be overwritten, but for the gaps
    const Outcome outcome =
        model->pass(queue, {parameters, gradients}, {x, y}, [this](std::size_t t) { ready.push_back(t); }).get();
    for (const Tensor& t : model->tensors())
      for (std::size_t i = t.offset; i < t.offset + t.count; ++i) parameters[i] -= 0.05F * gradients[i];
    return outcome;
  }

  /// A forward pass over more samples than any step has.
  double validate() {
    const std::vector<float> x(100 * 784, 0.25F);
    const std::vector<std::int32_t> y(100, 3);
    return model->forward(queue, {parameters, runtime::empty_buffer}, {x, y}).get().loss_sum;
  }

  std::unique_ptr<Model> model;
  LabelQueue queue;
  std::vector<float> parameters, gradients;
  std::vector<std::size_t> ready;
  std::array<std::vector<float>, 2> inputs;
  std::array<std::vector<std::int32_t>, 2> labels;
};

class RecordedModel : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    kernels::set_compute_threads(1);
    if (!kernels::onednn_refusal().empty()) GTEST_SKIP() << kernels::onednn_refusal();
  }
};

/// The same steps on both, of which the second never finds its inputs where they were.
void expect_equal_step(Replica& recorded, Replica& asked, std::size_t number, std::size_t samples) {
  SCOPED_TRACE("step " + std::to_string(number));
  const Outcome a = recorded.step(number, samples, 0), b = asked.step(number, samples, number % 2);
  EXPECT_EQ(a.loss_sum, b.loss_sum);
  EXPECT_EQ(a.correct, b.correct);
  EXPECT_EQ(a.labels, b.labels);
  EXPECT_EQ(recorded.queue.labels, asked.queue.labels);
  EXPECT_EQ(recorded.queue.flops, asked.queue.flops);
  EXPECT_EQ(recorded.ready, asked.ready);
  ASSERT_EQ(recorded.ready.size(), recorded.model->tensors().size());
  EXPECT_EQ(recorded.parameters, asked.parameters);
}

TEST_P(RecordedModel, HasTheBitsTheWorkAndTheOrderOfOneThatIsAsked) {
  Replica recorded(GetParam()), asked(GetParam());
  for (std::size_t i = 0; i < 6; ++i) expect_equal_step(recorded, asked, i, 8);
}

TEST_P(RecordedModel, AsksItsLayersAgainWhenMemoryOrSamplesAreOthers) {
  Replica recorded(GetParam()), asked(GetParam());
  for (std::size_t i = 0; i < 4; ++i) expect_equal_step(recorded, asked, i, 8);
  for (std::size_t i = 4; i < 8; ++i) expect_equal_step(recorded, asked, i, 24);  // its activations move
  for (std::size_t i = 8; i < 11; ++i) expect_equal_step(recorded, asked, i, 8);
  EXPECT_EQ(recorded.validate(), asked.validate());  // they move again, and the next step has the samples of the last
  expect_equal_step(recorded, asked, 11, 8);
  std::vector<float> elsewhere = recorded.parameters;
  std::swap(elsewhere, recorded.parameters);  // the old ones keep what they hold: stale work would read them
  for (std::size_t i = 12; i < 15; ++i) expect_equal_step(recorded, asked, i, 8);
  elsewhere = recorded.gradients;
  std::swap(elsewhere, recorded.gradients);
  for (std::size_t i = 15; i < 18; ++i) expect_equal_step(recorded, asked, i, 8);
}

INSTANTIATE_TEST_SUITE_P(All, RecordedModel,
                         testing::Values("mlp:784-24-20-10", "cnn:convolutions=1,filters=4,hidden=12",
                                         "lstm:hidden=12,layers=1"),
                         [](const auto& p) { return p.param.substr(0, p.param.find(':')); });

TEST(RecordedPass, RecursAtTheSecondPassOnTheSameMemory) {
  std::array<float, 4> memory{};
  RecordedPass pass;
  const RecordedPass::Operands here{.parameters = memory, .inputs = memory, .gradients = memory, .samples = 1};
  RecordedPass::Operands there = here;
  there.samples = 2;
  EXPECT_FALSE(pass.should_record(here));
  EXPECT_FALSE(pass.should_record(there));
  EXPECT_FALSE(pass.should_record(here));
  EXPECT_TRUE(pass.should_record(here));
  EXPECT_FALSE(pass.is_of(here));
  pass.begin();
  pass.end();
  EXPECT_TRUE(pass.is_of(here));
  EXPECT_FALSE(pass.is_of(there));
  pass.forget();
  EXPECT_FALSE(pass.is_of(here));
}

}  // namespace
}  // namespace gradmeter::model
