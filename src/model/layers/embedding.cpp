#include "model/layers/embedding.hpp"

#include <algorithm>
#include <array>
#include <stdexcept>

#include "core/format.hpp"
#include "kernels/loops.hpp"

namespace gradmeter::model {
namespace {

struct EmbeddingSizes {
  std::size_t steps, words, width;
  Weight weight;
};

class PreparedEmbedding final : public PreparedLayer {
 public:
  explicit PreparedEmbedding(const EmbeddingSizes& s) : s_(s) {}

  void forward(const LayerForward& f) override {
    const double bytes = 2.0 * static_cast<double>(f.output.bytes());
    f.queue.submit("forward.embedding", {.flops = 0, .bytes = bytes},
                   [s = s_, words = f.input, table = f.parameters[0], output = f.output] {
                     kernels::loops().embed(words, table, s.width, output);
                   });
  }

  void backward(const LayerBackward& b) override {
    const double bytes = static_cast<double>(b.gradients[0].bytes() + 3 * b.output_gradient.bytes());
    b.queue.submit("backward.embedding", {.flops = static_cast<double>(b.output_gradient.count()), .bytes = bytes},
                   [s = s_, words = b.input, delta = b.output_gradient, gradient = b.gradients[0]] {
                     kernels::loops().embed_backward(words, delta, s.width, s.weight == Weight::own, gradient);
                   });
    b.ready(0);
  }

 private:
  EmbeddingSizes s_;
};

class EmbeddingLayer final : public Layer {
 public:
  explicit EmbeddingLayer(const EmbeddingSizes& s) : s_(s), tensors_{LayerTensor{"weight", {s.words, s.width}, 0.1}} {}

  std::string name() const override { return fmt::format("embedding:{}x{}", s_.words, s_.width); }
  SampleShape input() const override { return FeatureShape{s_.steps}; }
  SampleShape output() const override { return TokenShape{.steps = s_.steps, .features = s_.width}; }
  std::span<const LayerTensor> tensors() const override { return tensors_; }
  LayerProblems problems(std::size_t, bool) const override { return {}; }
  std::unique_ptr<PreparedLayer> prepare(std::size_t, bool input_gradient, runtime::Device&) const override {
    if (input_gradient) throw std::logic_error("words have no gradient: an embedding is a network's first layer");
    return std::make_unique<PreparedEmbedding>(s_);
  }

 private:
  EmbeddingSizes s_;
  std::array<LayerTensor, 1> tensors_;
};

}  // namespace

std::unique_ptr<Layer> make_embedding_layer(std::size_t steps, std::size_t words, std::size_t width, Weight weight) {
  return std::make_unique<EmbeddingLayer>(EmbeddingSizes{steps, words, width, weight});
}

}  // namespace gradmeter::model
