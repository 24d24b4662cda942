#include "model/layers/layer_norm.hpp"

#include <array>

#include "kernels/loops.hpp"

namespace gradmeter::model {
namespace {

class PreparedLayerNorm final : public PreparedLayer {
 public:
  void forward(const LayerForward& f) override {
    const double n = static_cast<double>(f.input.count());
    f.queue.submit("forward.norm", {.flops = 8 * n, .bytes = 12 * n},
                   [x = f.input, gain = f.parameters[0], bias = f.parameters[1], y = f.output] {
                     kernels::loops().layer_norm(x, gain, bias, y);
                   });
  }

  void backward(const LayerBackward& b) override {
    const double n = static_cast<double>(b.input.count());
    b.queue.submit("backward.norm", {.flops = 8 * n, .bytes = 12 * n},
                   [x = b.input, delta = b.output_gradient, gain = b.gradients[0], bias = b.gradients[1]] {
                     kernels::loops().layer_norm_backward_parameters(x, delta, gain, bias);
                   });
    b.ready(0);
    b.ready(1);
    if (b.input_gradient.count() == 0) return;
    b.queue.submit("backward.norm", {.flops = 16 * n, .bytes = 16 * n},
                   [x = b.input, gain = b.parameters[0], delta = b.output_gradient, to = b.input_gradient] {
                     kernels::loops().layer_norm_backward(x, gain, delta, to);
                   });
  }
};

class LayerNormLayer final : public Layer {
 public:
  explicit LayerNormLayer(const TokenShape& tokens)
      : tokens_(tokens),
        tensors_{LayerTensor{.name = "gain", .shape = {tokens.features}, .centre = 1},
                 LayerTensor{.name = "bias", .shape = {tokens.features}}} {}

  std::string name() const override { return "norm"; }
  SampleShape input() const override { return tokens_; }
  SampleShape output() const override { return tokens_; }
  std::span<const LayerTensor> tensors() const override { return tensors_; }
  LayerProblems problems(std::size_t, bool) const override { return {}; }
  std::unique_ptr<PreparedLayer> prepare(std::size_t, bool, runtime::Device&) const override {
    return std::make_unique<PreparedLayerNorm>();
  }

 private:
  TokenShape tokens_;
  std::array<LayerTensor, 2> tensors_;
};

}  // namespace

std::unique_ptr<Layer> make_layer_norm_layer(const TokenShape& tokens) {
  return std::make_unique<LayerNormLayer>(tokens);
}

}  // namespace gradmeter::model
