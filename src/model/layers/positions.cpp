#include "model/layers/positions.hpp"

#include <array>

#include "kernels/loops.hpp"
#include "kernels/vector_ops.hpp"

namespace gradmeter::model {
namespace {

class PreparedPositions final : public PreparedLayer {
 public:
  void forward(const LayerForward& f) override {
    const double n = static_cast<double>(f.input.count());
    f.queue.submit(
        "forward.positions", {.flops = n, .bytes = 8 * n},
        [x = f.input, rows = f.parameters[0], y = f.output] { kernels::loops().add_row(x, rows, false, y); });
  }
  void backward(const LayerBackward& b) override {
    const double n = static_cast<double>(b.output_gradient.count());
    b.queue.submit("backward.positions", {.flops = n, .bytes = 4 * n},
                   [delta = b.output_gradient, to = b.gradients[0]] { kernels::loops().column_sums(delta, to); });
    b.ready(0);
    if (b.input_gradient.count() > 0) b.queue.copy("backward.copy", b.output_gradient, b.input_gradient);
  }
};

class PositionsLayer final : public Layer {
 public:
  explicit PositionsLayer(const TokenShape& tokens)
      : tokens_(tokens), tensors_{LayerTensor{"weight", {tokens.steps, tokens.features}, 0.1}} {}
  std::string name() const override { return "positions"; }
  SampleShape input() const override { return tokens_; }
  SampleShape output() const override { return tokens_; }
  std::span<const LayerTensor> tensors() const override { return tensors_; }
  LayerProblems problems(std::size_t, bool) const override { return {}; }
  std::unique_ptr<PreparedLayer> prepare(std::size_t, bool, runtime::Device&) const override {
    return std::make_unique<PreparedPositions>();
  }

 private:
  TokenShape tokens_;
  std::array<LayerTensor, 1> tensors_;
};

}  // namespace

std::unique_ptr<Layer> make_positions_layer(const TokenShape& tokens) {
  return std::make_unique<PositionsLayer>(tokens);
}

}  // namespace gradmeter::model
