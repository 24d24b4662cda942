// SPDX-License-Identifier: Apache-2.0
// Networks of layers: their gradients are the slopes of their loss, and they learn.
#include "model/network/network.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <ostream>

#include "core/error.hpp"
#include "core/random.hpp"
#include "kernels/host/library.hpp"
#include "kernels/host/threads.hpp"
#include "kernels/pointwise/pointwise.hpp"
#include "model/layers/layers.hpp"
#include "support/deferred.hpp"

namespace gradmeter::model {
namespace {

using kernels::Activation;

constexpr std::size_t pattern_classes = 4;

std::unique_ptr<Network> convolutions() {
  std::vector<std::unique_ptr<Layer>> layers;
  layers.push_back(make_convolution_layer({.channels = 1, .height = 12, .width = 12}, {.filters = 6, .pad = 1}));
  layers.push_back(make_convolution_layer(std::get<ImageShape>(layers.back()->output()), {.filters = 11, .stride = 2}));
  layers.push_back(make_dense_layer(layers.back()->output(), pattern_classes, Activation::none));
  return std::make_unique<Network>("convolutions", std::move(layers));
}

std::unique_ptr<Network> recurrent() {
  std::vector<std::unique_ptr<Layer>> layers;
  const TokenShape tokens{.steps = 12, .features = 12};
  layers.push_back(make_recurrent_layer(kernels::Cell::lstm, tokens, 9, RecurrentOutput::every_step));
  layers.push_back(make_recurrent_layer(kernels::Cell::lstm, std::get<TokenShape>(layers.back()->output()), 14,
                                        RecurrentOutput::last_step));
  layers.push_back(make_dense_layer(layers.back()->output(), pattern_classes, Activation::none));
  return std::make_unique<Network>("recurrent", std::move(layers));
}

std::unique_ptr<Network> attention() {
  const TokenShape tokens{.steps = 12, .features = 12};
  std::vector<std::unique_ptr<Layer>> part, layers;
  part.push_back(make_layer_norm_layer(tokens));
  part.push_back(make_step_dense_layer(tokens, 36));
  part.push_back(make_attention_layer(12, {.width = 12, .heads = 3}));
  layers.push_back(make_residual_layer(std::move(part)));
  layers.push_back(make_gelu_layer(tokens));
  layers.push_back(make_dense_layer(layers.back()->output(), pattern_classes, Activation::none));
  return std::make_unique<Network>("attention", std::move(layers));
}

/// Samples of 144 numbers: a pattern for each class under noise.
struct Samples {
  explicit Samples(std::size_t count) : inputs(144 * count), labels(count) {
    const core::Random patterns(1, 0), noise(2, 0);
    for (std::size_t s = 0; s < count; ++s) {
      const auto label = s * 7 % pattern_classes;
      labels[s] = static_cast<std::int32_t>(label);
      for (std::size_t i = 0; i < 144; ++i)
        inputs[144 * s + i] =
            static_cast<float>(patterns.gaussian(144 * label + i) + 0.5 * noise.gaussian(144 * s + i));
    }
  }
  Batch batch() const { return {inputs, labels}; }
  std::vector<float> inputs;
  std::vector<std::int32_t> labels;
};

struct NetworkCase {
  std::string_view name;
  std::unique_ptr<Network> (*make)();
  std::size_t tensors;
  float step;
  friend std::ostream& operator<<(std::ostream& to, const NetworkCase& c) { return to << c.name; }
};

class Networks : public testing::TestWithParam<NetworkCase> {
 protected:
  void SetUp() override {
    kernels::set_compute_threads(1);
    if (!kernels::onednn_refusal().empty()) GTEST_SKIP() << kernels::onednn_refusal();
    network_ = GetParam().make();
    parameters_.resize(network_->element_count());
    gradients_.resize(network_->element_count());
    network_->initialise(queue_, {parameters_, gradients_}, 1);
  }
  double loss(const Batch& batch) { return network_->forward(queue_, buffers(), batch).get().mean_loss(); }
  Outcome pass(const Batch& batch) {
    ready_.clear();
    return network_->pass(queue_, buffers(), batch, [&](std::size_t t) { ready_.push_back(t); }).get();
  }
  Buffers buffers() { return {parameters_, gradients_}; }
  /// The slope of the loss along a direction of unit length in one tensor.
  double slope(const Tensor& t, const std::vector<float>& direction, const Batch& batch) {
    const std::vector<float> before = parameters_;
    const auto moved = [&](float h) {
      for (std::size_t i = 0; i < t.count; ++i) parameters_[t.offset + i] = before[t.offset + i] + h * direction[i];
      return loss(batch);
    };
    constexpr float h = 0.004F;
    const double difference = (moved(h) - moved(-h)) / (2 * h);
    parameters_ = before;
    return difference;
  }

  runtime::HostQueue queue_;
  std::unique_ptr<Network> network_;
  std::vector<float> parameters_, gradients_;
  std::vector<std::size_t> ready_;
};

TEST_P(Networks, GradientsAreTheSlopesOfTheLoss) {
  const Samples samples(16);
  std::ranges::fill(gradients_, 7.0F);
  pass(samples.batch());
  ASSERT_EQ(network_->tensors().size(), GetParam().tensors);
  for (std::size_t i = 0; i < ready_.size(); ++i) EXPECT_EQ(ready_[i], i);
  EXPECT_EQ(ready_.size(), GetParam().tensors);
  std::vector<bool> in_a_tensor(gradients_.size());
  for (const Tensor& t : network_->tensors()) {
    const std::span<const float> g = std::span<const float>(gradients_).subspan(t.offset, t.count);
    double squares = 0;
    for (const float x : g) squares += double{x} * x;
    const double norm = std::sqrt(squares);
    ASSERT_GT(norm, 1e-4) << t.name;
    std::vector<float> along(g.begin(), g.end());
    for (float& x : along) x = static_cast<float>(x / norm);
    EXPECT_NEAR(slope(t, along, samples.batch()), norm, 0.01 * norm) << t.name;
    std::fill_n(in_a_tensor.begin() + static_cast<std::ptrdiff_t>(t.offset), t.count, true);
  }
  for (std::size_t i = 0; i < gradients_.size(); ++i) EXPECT_TRUE(in_a_tensor[i] || gradients_[i] == 0) << i;
}

TEST_P(Networks, Learn) {
  const Samples samples(64);
  const double before = loss(samples.batch());
  EXPECT_NEAR(before, std::log(double{pattern_classes}), 0.7);
  Outcome last;
  for (int step = 0; step < 60; ++step) {
    last = pass(samples.batch());
    kernels::sgd(parameters_, gradients_, GetParam().step);
  }
  EXPECT_LT(last.mean_loss(), 0.1 * before);
  EXPECT_GE(last.correct, 62U);
  EXPECT_EQ(last.labels, 64U);
}

TEST_P(Networks, TheBatchesOfATrainingDoNotDisturbEachOther) {
  const Samples small(5), large(12);
  pass(small.batch());
  const std::vector<float> once = gradients_;
  pass(large.batch());
  EXPECT_NE(gradients_, once);
  loss(large.batch());
  pass(small.batch());
  EXPECT_EQ(gradients_, once);
}

TEST_P(Networks, AScaledLossScalesItsGradientsAndNothingElse) {
  const Samples samples(12);
  const Outcome plain = pass(samples.batch());
  std::vector<float> wanted = gradients_;
  for (float& g : wanted) g *= 1024;
  const float scale = 1024;
  Batch batch = samples.batch();
  batch.loss_scale = std::span(&scale, 1);
  EXPECT_EQ(pass(batch).loss_sum, plain.loss_sum);
  EXPECT_EQ(gradients_, wanted);
}

struct Trained {
  std::vector<float> parameters, gradients;
  std::vector<double> losses;
  bool operator==(const Trained&) const = default;
};

/// Steps of which the caller waits for none, and a forward pass of another batch size between them.
Trained train(Network& network, Queue& queue, float step) {
  using core::Element;
  const Samples samples(24), others(7);
  runtime::Device& device = queue.device();
  std::vector<runtime::OwnedBuffer> memory;
  const auto on_device = [&](const runtime::ConstBuffer& host) {
    const Buffer b = memory.emplace_back(device.allocate(host.element(), host.count())).buffer;
    queue.copy("upload", host, b);
    return b;
  };
  const auto floats = [&] {
    return memory.emplace_back(device.allocate(Element::f32, network.element_count())).buffer;
  };
  const Buffers buffers{floats(), floats()};
  const Batch batch{on_device(samples.inputs), on_device(samples.labels)};
  const Batch other{on_device(others.inputs), on_device(others.labels)};
  network.initialise(queue, buffers, 1);
  std::vector<PendingOutcome> outcomes;
  for (int i = 0; i < 40; ++i) {
    outcomes.push_back(network.pass(queue, buffers, batch, [](std::size_t) {}));
    queue.submit("sgd", {}, [buffers, step] {
      kernels::sgd(buffers.parameters.values<float>(), buffers.gradients.values<float>(), step);
    });
    outcomes.push_back(network.forward(queue, buffers, other));
  }
  Trained end{std::vector<float>(network.element_count()), std::vector<float>(network.element_count()), {}};
  queue.copy("download", buffers.parameters, end.parameters);
  queue.copy("download", buffers.gradients, end.gradients);
  queue.synchronise();
  for (const PendingOutcome& o : outcomes) end.losses.push_back(o.get().loss_sum);
  return end;
}

TEST_P(Networks, TrainOnADeviceThatWorksLaterWithTheHostsBits) {
  const Trained host = train(*network_, queue_, GetParam().step);
  EXPECT_LT(host.losses[78], 0.3 * host.losses[0]);
  test::DeferredDevice device;
  const auto network = GetParam().make();  // its memory goes before the device
  for (std::uint64_t seed = 0; seed < 5; ++seed) {
    test::DeferredQueue queue(device, {.seed = seed});
    EXPECT_TRUE(train(*network, queue, GetParam().step) == host) << seed;
  }
}

INSTANTIATE_TEST_SUITE_P(Of, Networks,
                         testing::Values(NetworkCase{"convolutions", convolutions, 6, 0.05F},
                                         NetworkCase{"recurrent", recurrent, 8, 0.5F},
                                         NetworkCase{"attention", attention, 6, 0.05F}),
                         [](const auto& instance) { return std::string(instance.param.name); });

TEST(Network, RefusesLayersThatDoNotFit) {
  std::vector<std::unique_ptr<Layer>> layers;
  layers.push_back(make_dense_layer(FeatureShape{8}, 5, Activation::relu));
  layers.push_back(make_dense_layer(FeatureShape{6}, 2, Activation::none));
  EXPECT_THROW(Network("wrong", std::move(layers)), core::UsageError);
  EXPECT_THROW(Network("empty", {}), core::UsageError);
}

TEST(Network, StatesItsFlopsAndTensors) {
  const auto network = convolutions();
  // 6 filters over 12 x 12, 11 filters of 6 channels over 5 x 5, 275 inputs of the last layer.
  const double first = 2.0 * 144 * 6 * 9, second = 2.0 * 25 * 11 * 54, third = 2.0 * 275 * pattern_classes;
  EXPECT_EQ(network->step_flops(3), 3 * (2 * first + 3 * second + 3 * third));
  EXPECT_EQ(network->tensors()[0].name, "layer3.weight");
  EXPECT_EQ(network->tensors()[5].name, "layer1.bias");
  EXPECT_EQ(network->input_features(), 144U);
  EXPECT_EQ(network->classes(), pattern_classes);
}

}  // namespace
}  // namespace gradmeter::model
