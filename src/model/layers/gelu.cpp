#include "model/layers/gelu.hpp"

#include "kernels/loops.hpp"

namespace gradmeter::model {
namespace {

class PreparedGelu final : public PreparedLayer {
 public:
  void forward(const LayerForward& f) override {
    const double n = static_cast<double>(f.input.count());
    f.queue.submit("forward.gelu", {.flops = 10 * n, .bytes = 8 * n},
                   [x = f.input, y = f.output] { kernels::loops().gelu(x, y); });
  }
  void backward(const LayerBackward& b) override {
    if (b.input_gradient.count() == 0) return;
    const double n = static_cast<double>(b.input.count());
    b.queue.submit("backward.gelu", {.flops = 18 * n, .bytes = 12 * n},
                   [x = b.input, delta = b.output_gradient, to = b.input_gradient] {
                     kernels::loops().gelu_backward(x, delta, to);
                   });
  }
};

class GeluLayer final : public Layer {
 public:
  explicit GeluLayer(const TokenShape& tokens) : tokens_(tokens) {}
  std::string name() const override { return "gelu"; }
  SampleShape input() const override { return tokens_; }
  SampleShape output() const override { return tokens_; }
  std::span<const LayerTensor> tensors() const override { return {}; }
  LayerProblems problems(std::size_t, bool) const override { return {}; }
  std::unique_ptr<PreparedLayer> prepare(std::size_t, bool, runtime::Device&) const override {
    return std::make_unique<PreparedGelu>();
  }
  std::unique_ptr<Layer> part(Cut cut, std::size_t, std::size_t ranks) const override {
    if (cut != Cut::between) return nullptr;
    return std::make_unique<GeluLayer>(TokenShape{.steps = tokens_.steps, .features = tokens_.features / ranks});
  }

 private:
  TokenShape tokens_;
};

}  // namespace

std::unique_ptr<Layer> make_gelu_layer(const TokenShape& tokens) { return std::make_unique<GeluLayer>(tokens); }

}  // namespace gradmeter::model
