// SPDX-License-Identifier: Apache-2.0
// A layer as docs/adding.md describes it, in one file: each feature times a weight of its own.
#include <gtest/gtest.h>

#include <array>

#include "kernels/host/threads.hpp"
#include "model/layers/layers.hpp"
#include "model/network/network.hpp"

namespace gradmeter::model {
namespace {

class PreparedGain final : public PreparedLayer {
 public:
  explicit PreparedGain(bool input_gradient) : input_gradient_(input_gradient) {}

  void forward(const LayerForward& f) override {
    const double count = static_cast<double>(f.input.count());
    f.queue.submit("forward.gain", {.flops = count, .bytes = 8 * count},
                   [x = f.input, gain = f.parameters[0], y = f.output] {
                     scale_rows(x.values<float>(), gain.values<float>(), y.values<float>());
                   });
  }
  void backward(const LayerBackward& b) override {
    const double count = static_cast<double>(b.input.count());
    b.queue.submit("backward.gain", {.flops = 2 * count, .bytes = 8 * count},
                   [x = b.input, delta = b.output_gradient, to = b.gradients[0]] {
                     const auto g = to.values<float>();
                     const auto in = x.values<float>();
                     const auto d = delta.values<float>();
                     std::fill(g.begin(), g.end(), 0.0F);
                     for (std::size_t i = 0; i < in.size(); ++i) g[i % g.size()] += in[i] * d[i];
                   });
    b.ready(0);
    if (!input_gradient_) return;
    b.queue.submit("backward.gain", {.flops = count, .bytes = 8 * count},
                   [delta = b.output_gradient, gain = b.parameters[0], to = b.input_gradient] {
                     scale_rows(delta.values<float>(), gain.values<float>(), to.values<float>());
                   });
  }

 private:
  static void scale_rows(std::span<const float> x, std::span<const float> gain, std::span<float> y) {
    for (std::size_t i = 0; i < x.size(); ++i) y[i] = x[i] * gain[i % gain.size()];
  }
  bool input_gradient_;
};

class Gain final : public Layer {
 public:
  explicit Gain(std::size_t features) : features_(features), tensors_{LayerTensor{"gain", {features}, 1}} {}
  std::string name() const override { return "gain"; }
  SampleShape input() const override { return FeatureShape{features_}; }
  SampleShape output() const override { return FeatureShape{features_}; }
  std::span<const LayerTensor> tensors() const override { return tensors_; }
  LayerProblems problems(std::size_t, bool) const override { return {}; }  // it runs no operation of the library
  std::unique_ptr<PreparedLayer> prepare(std::size_t, bool input_gradient, runtime::Device&) const override {
    return std::make_unique<PreparedGain>(input_gradient);
  }

 private:
  std::size_t features_;
  std::array<LayerTensor, 1> tensors_;
};

TEST(DummyLayer, TrainsInANetworkAmongOthers) {
  kernels::set_compute_threads(1);
  std::vector<std::unique_ptr<Layer>> layers;
  layers.push_back(std::make_unique<Gain>(3));
  layers.push_back(make_dense_layer(FeatureShape{3}, 5, kernels::Activation::relu));
  layers.push_back(std::make_unique<Gain>(5));
  layers.push_back(make_dense_layer(FeatureShape{5}, 2, kernels::Activation::none));
  Network network("dummy", std::move(layers));
  runtime::HostQueue queue;
  std::vector<float> parameters(network.element_count()), gradients(network.element_count());
  const Buffers buffers{parameters, gradients};
  network.initialise(queue, buffers, 4);  // no sum lies so near zero that a step of h takes ReLU over it
  const std::vector<float> inputs{1, 2, -1, -2, 1, 1, 3, 1, 2, -1, -1, 1};
  const std::vector<std::int32_t> labels{0, 1, 1, 0};
  const Batch batch{inputs, labels};
  (void)network.pass(queue, buffers, batch, [](std::size_t) {});
  for (const Tensor& t : network.tensors())
    for (std::size_t i = t.offset; i < t.offset + t.count; ++i) {
      constexpr float h = 0.01F;
      const float before = parameters[i];
      const auto loss_at = [&](float x) {
        parameters[i] = x;
        return network.forward(queue, buffers, batch).get().mean_loss();
      };
      const double slope = (loss_at(before + h) - loss_at(before - h)) / (2 * h);
      parameters[i] = before;
      EXPECT_NEAR(gradients[i], slope, 2e-4) << t.name << " " << i - t.offset;
    }
  EXPECT_EQ(network.tensors().back().name, "layer1.gain");
}

}  // namespace
}  // namespace gradmeter::model
