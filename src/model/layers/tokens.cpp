// SPDX-License-Identifier: Apache-2.0
// Layers of tokens that run loops (kernels/loops.hpp) but no kernels::Op, and keep nothing between their passes.
#include <algorithm>
#include <array>
#include <stdexcept>

#include "core/format.hpp"
#include "kernels/loops.hpp"
#include "kernels/pointwise/pointwise.hpp"
#include "model/layers/layers.hpp"

namespace gradmeter::model {
namespace {

/// A prepared layer that needs no memory between its passes: a copy of the layer, whose `forward` and `backward` it
/// runs.
template <class AnyLayer>
class Stateless final : public PreparedLayer {
 public:
  explicit Stateless(const AnyLayer& layer) : layer_(layer) {}
  void forward(const LayerForward& f) override { layer_.forward(f); }
  void backward(const LayerBackward& b) override { layer_.backward(b); }

 private:
  AnyLayer layer_;
};

/// A layer whose output has the shape of its input, and that runs no kernels::Op.
class TokenwiseLayer : public Layer {
 public:
  explicit TokenwiseLayer(const TokenShape& tokens) : tokens_(tokens) {}
  SampleShape input() const final { return tokens_; }
  SampleShape output() const final { return tokens_; }
  LayerProblems problems(std::size_t, bool) const final { return {}; }

 protected:
  TokenShape tokens_;
};

struct EmbeddingSizes {
  std::size_t steps, words, width;
  Weight weight;
};

class EmbeddingLayer final : public Layer {
 public:
  explicit EmbeddingLayer(const EmbeddingSizes& s)
      : sizes_(s), tensors_{LayerTensor{"weight", {s.words, s.width}, 0.1}} {}

  std::string name() const override { return fmt::format("embedding:{}x{}", sizes_.words, sizes_.width); }
  SampleShape input() const override { return FeatureShape{sizes_.steps}; }
  SampleShape output() const override { return TokenShape{.steps = sizes_.steps, .features = sizes_.width}; }
  std::span<const LayerTensor> tensors() const override { return tensors_; }
  LayerProblems problems(std::size_t, bool) const override { return {}; }
  std::unique_ptr<PreparedLayer> prepare(std::size_t, bool input_gradient, runtime::Device&) const override {
    if (input_gradient) throw std::logic_error("words have no gradient: an embedding is a network's first layer");
    return std::make_unique<Stateless<EmbeddingLayer>>(*this);
  }

  void forward(const LayerForward& f) const {
    const double bytes = 2.0 * static_cast<double>(f.output.bytes());
    f.queue.submit("forward.embedding", {.flops = 0, .bytes = bytes},
                   [s = sizes_, words = f.input, table = f.parameters[0], output = f.output] {
                     kernels::loops().embed(words, table, s.width, output);
                   });
  }

  void backward(const LayerBackward& b) const {
    const bool clears = sizes_.weight == Weight::own;  // the owner of a tied weight has cleared its gradient
    const double bytes = static_cast<double>((clears ? b.gradients[0].bytes() : 0) + 3 * b.output_gradient.bytes());
    b.queue.submit("backward.embedding", {.flops = static_cast<double>(b.output_gradient.count()), .bytes = bytes},
                   [s = sizes_, words = b.input, delta = b.output_gradient, gradient = b.gradients[0]] {
                     kernels::loops().embed_backward(words, delta, s.width, s.weight == Weight::own, gradient);
                   });
    b.ready(0);
  }

 private:
  EmbeddingSizes sizes_;
  std::array<LayerTensor, 1> tensors_;
};

}  // namespace

std::unique_ptr<Layer> make_embedding_layer(std::size_t steps, std::size_t words, std::size_t width, Weight weight) {
  return std::make_unique<EmbeddingLayer>(EmbeddingSizes{steps, words, width, weight});
}

namespace {

class PositionsLayer final : public TokenwiseLayer {
 public:
  explicit PositionsLayer(const TokenShape& tokens)
      : TokenwiseLayer(tokens), tensors_{LayerTensor{"weight", {tokens.steps, tokens.features}, 0.1}} {}
  std::string name() const override { return "positions"; }
  std::span<const LayerTensor> tensors() const override { return tensors_; }
  std::unique_ptr<PreparedLayer> prepare(std::size_t, bool, runtime::Device&) const override {
    return std::make_unique<Stateless<PositionsLayer>>(*this);
  }

  void forward(const LayerForward& f) const {
    const double n = static_cast<double>(f.input.count());
    f.queue.submit(
        "forward.positions", {.flops = n, .bytes = 8 * n},
        [x = f.input, rows = f.parameters[0], y = f.output] { kernels::loops().add_row(x, rows, false, y); });
  }
  void backward(const LayerBackward& b) const {
    const double n = static_cast<double>(b.output_gradient.count());
    b.queue.submit("backward.positions", {.flops = n, .bytes = 4 * n},
                   [delta = b.output_gradient, to = b.gradients[0]] { kernels::loops().column_sums(delta, to); });
    b.ready(0);
    if (b.input_gradient.count() > 0) b.queue.copy("backward.copy", b.output_gradient, b.input_gradient);
  }

 private:
  std::array<LayerTensor, 1> tensors_;
};

}  // namespace

std::unique_ptr<Layer> make_positions_layer(const TokenShape& tokens) {
  return std::make_unique<PositionsLayer>(tokens);
}

namespace {

class GeluLayer final : public TokenwiseLayer {
 public:
  using TokenwiseLayer::TokenwiseLayer;
  std::string name() const override { return "gelu"; }
  std::span<const LayerTensor> tensors() const override { return {}; }
  std::unique_ptr<PreparedLayer> prepare(std::size_t, bool, runtime::Device&) const override {
    return std::make_unique<Stateless<GeluLayer>>(*this);
  }
  std::unique_ptr<Layer> part(Cut cut, std::size_t, std::size_t ranks) const override {
    if (cut != Cut::between) return nullptr;
    return std::make_unique<GeluLayer>(TokenShape{.steps = tokens_.steps, .features = tokens_.features / ranks});
  }

  void forward(const LayerForward& f) const {
    const double n = static_cast<double>(f.input.count());
    f.queue.submit("forward.gelu", {.flops = 10 * n, .bytes = 8 * n},
                   [x = f.input, y = f.output] { kernels::loops().gelu(x, y); });
  }
  void backward(const LayerBackward& b) const {
    if (b.input_gradient.count() == 0) return;
    const double n = static_cast<double>(b.input.count());
    b.queue.submit("backward.gelu", {.flops = 18 * n, .bytes = 12 * n},
                   [x = b.input, delta = b.output_gradient, to = b.input_gradient] {
                     kernels::loops().gelu_backward(x, delta, to);
                   });
  }
};

}  // namespace

std::unique_ptr<Layer> make_gelu_layer(const TokenShape& tokens) { return std::make_unique<GeluLayer>(tokens); }

namespace {

class LayerNormLayer final : public TokenwiseLayer {
 public:
  explicit LayerNormLayer(const TokenShape& tokens)
      : TokenwiseLayer(tokens),
        tensors_{LayerTensor{.name = "gain", .shape = {tokens.features}, .centre = 1},
                 LayerTensor{.name = "bias", .shape = {tokens.features}}} {}

  std::string name() const override { return "norm"; }
  std::span<const LayerTensor> tensors() const override { return tensors_; }
  std::unique_ptr<PreparedLayer> prepare(std::size_t, bool, runtime::Device&) const override {
    return std::make_unique<Stateless<LayerNormLayer>>(*this);
  }

  void forward(const LayerForward& f) const {
    const double n = static_cast<double>(f.input.count());
    f.queue.submit("forward.norm", {.flops = 8 * n, .bytes = 12 * n},
                   [x = f.input, gain = f.parameters[0], bias = f.parameters[1], y = f.output] {
                     kernels::loops().layer_norm(x, gain, bias, y);
                   });
  }

  void backward(const LayerBackward& b) const {
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

 private:
  std::array<LayerTensor, 2> tensors_;
};

}  // namespace

std::unique_ptr<Layer> make_layer_norm_layer(const TokenShape& tokens) {
  return std::make_unique<LayerNormLayer>(tokens);
}

}  // namespace gradmeter::model
