// SPDX-License-Identifier: Apache-2.0
#include "model/layers/layers.hpp"

#include <cmath>
#include <cstring>

#include "core/error.hpp"
#include "core/format.hpp"
#include "kernels/loops.hpp"
#include "model/layers/operations.hpp"

namespace gradmeter::model {
namespace {

using kernels::GemmShape;
using kernels::Problem;
using kernels::Transpose;
using runtime::Buffer;
using runtime::ConstBuffer;
using runtime::OwnedBuffer;

struct AttentionSizes {
  std::size_t samples, steps, heads, head_width;
  /// Elements of all queries, of all keys, of all values, or of all contexts.
  std::size_t part_elements() const { return samples * steps * heads * head_width; }
  std::size_t score_elements() const { return samples * heads * steps * steps; }
};

/// The products of an attention layer: scores and context in the forward pass, the others in the backward pass.
struct AttentionProducts {
  Problem scores, context, value_gradient, key_gradient;
  AttentionProducts(const AttentionSizes& s, kernels::Precision precision) {
    const std::size_t t = s.steps, d = s.head_width, count = s.samples * s.heads;
    const auto problem = [&](const GemmShape& shape) { return Problem{.shape = shape, .precision = precision}; };
    scores = problem({.m = t, .n = t, .k = d, .transpose_b = Transpose::yes, .count = count});
    context = problem({.m = t, .n = d, .k = t, .count = count});
    value_gradient = key_gradient = problem({.m = t, .n = d, .k = t, .transpose_a = Transpose::yes, .count = count});
  }
  const Problem& probability_gradient() const { return scores; }
  const Problem& query_gradient() const { return context; }
};

enum class HeadOrder : std::uint8_t { to_heads, to_tokens };

/// Reorders [samples × steps × parts × heads × width] to [parts × samples × heads × steps × width], or back.
void reorder(runtime::Queue& queue, std::string_view label, const AttentionSizes& s, HeadOrder order,
             const ConstBuffer& from, const Buffer& to) {
  queue.submit(label, {.flops = 0, .bytes = 2.0 * static_cast<double>(from.bytes())}, [=] {
    kernels::loops().reorder_heads(from, {s.samples, s.steps, s.heads, s.head_width, order == HeadOrder::to_heads}, to);
  });
}

class PreparedAttention final : public PreparedLayer {
 public:
  PreparedAttention(const AttentionSizes& s, const AttentionProducts& p, runtime::Device& device)
      : sizes_(s),
        scale_(1 / std::sqrt(static_cast<float>(s.head_width))),
        scores_(p.scores, device),
        context_(p.context, device),
        probability_gradient_(p.probability_gradient(), device),
        value_gradient_(p.value_gradient, device),
        query_gradient_(p.query_gradient(), device),
        key_gradient_(p.key_gradient, device) {
    for (OwnedBuffer* const b : {&parts_, &part_gradients_})
      *b = device.allocate(core::Element::f32, 3 * s.part_elements());
    for (OwnedBuffer* const b : {&probabilities_, &score_gradient_})
      *b = device.allocate(core::Element::f32, s.score_elements());
    contexts_ = device.allocate(core::Element::f32, s.part_elements());
  }

  void forward(const LayerForward& f) override {
    reorder(f.queue, "forward.heads", sizes_, HeadOrder::to_heads, f.input, parts_.buffer);
    const Buffer p = probabilities_.buffer;
    scores_.run(f.queue, "forward.gemm", "forward.pack", {part(parts_, query), part(parts_, key)}, {p});
    const double n = static_cast<double>(p.count());
    f.queue.submit("forward.attention_softmax", {.flops = 6 * n, .bytes = 8 * n},
                   [p, s = sizes_, scale = scale_] { kernels::loops().causal_softmax(p, s.steps, scale); });
    context_.run(f.queue, "forward.gemm", "forward.pack", {p, part(parts_, value)}, {contexts_.buffer});
    reorder(f.queue, "forward.heads", sizes_, HeadOrder::to_tokens, contexts_.buffer, f.output);
  }

  void backward(const LayerBackward& b) override {
    if (b.input_gradient.count() == 0) return;
    const Buffer p = probabilities_.buffer, g = score_gradient_.buffer, delta = contexts_.buffer;
    reorder(b.queue, "backward.heads", sizes_, HeadOrder::to_heads, b.output_gradient, delta);
    product(b, value_gradient_, p, delta, part(part_gradients_, value));
    product(b, probability_gradient_, delta, part(parts_, value), g);
    const double n = static_cast<double>(g.count());
    b.queue.submit("backward.attention_softmax", {.flops = 5 * n, .bytes = 12 * n}, [p, g, s = sizes_, scale = scale_] {
      kernels::loops().causal_softmax_backward(p, g, s.steps, scale);
    });
    product(b, query_gradient_, g, part(parts_, key), part(part_gradients_, query));
    product(b, key_gradient_, g, part(parts_, query), part(part_gradients_, key));
    reorder(b.queue, "backward.heads", sizes_, HeadOrder::to_tokens, part_gradients_.buffer, b.input_gradient);
  }

 private:
  static constexpr std::size_t query = 0, key = 1, value = 2;
  Buffer part(const OwnedBuffer& joined, std::size_t index) const {
    return joined.buffer.part(index * sizes_.part_elements(), sizes_.part_elements());
  }
  static void product(const LayerBackward& b, PlainOp& op, const ConstBuffer& left, const ConstBuffer& right,
                      const Buffer& to) {
    op.run(b.queue, "backward.gemm", "backward.pack", {left, right}, {to});
  }

  AttentionSizes sizes_;
  float scale_;
  PlainOp scores_, context_, probability_gradient_, value_gradient_, query_gradient_, key_gradient_;
  OwnedBuffer parts_, part_gradients_;  // [queries, keys, values][samples × heads × steps × head width]
  // [samples × heads × steps × steps]; the gradient is first that of probabilities, then that of scores
  OwnedBuffer probabilities_, score_gradient_;
  OwnedBuffer contexts_;  // contexts in the forward pass, their gradient in the backward pass
};

class AttentionLayer final : public Layer {
 public:
  AttentionLayer(std::size_t steps, const AttentionOptions& o) : steps_(steps), options_(o) {
    if (o.heads == 0 || o.width % o.heads != 0)
      throw core::UsageError(
          fmt::format("{} heads do not divide a width of {}; give numbers of heads and hidden units so that they do",
                      o.heads, o.width));
  }
  std::string name() const override {
    return fmt::format("attention:{}x{}", options_.heads, options_.width / options_.heads);
  }
  SampleShape input() const override { return TokenShape{.steps = steps_, .features = 3 * options_.width}; }
  SampleShape output() const override { return TokenShape{.steps = steps_, .features = options_.width}; }
  std::span<const LayerTensor> tensors() const override { return {}; }
  LayerProblems problems(std::size_t samples, bool input_gradient) const override {
    const AttentionProducts p(sizes(samples), options_.precision);
    LayerProblems problems{.forward = {p.scores, p.context}, .backward = {}};
    if (input_gradient)
      problems.backward = {p.value_gradient, p.probability_gradient(), p.query_gradient(), p.key_gradient};
    return problems;
  }
  std::size_t activation_elements() const override {
    return 7 * sizes(1).part_elements() + 2 * sizes(1).score_elements();
  }
  std::unique_ptr<PreparedLayer> prepare(std::size_t samples, bool, runtime::Device& device) const override {
    const AttentionSizes s = sizes(samples);
    return std::make_unique<PreparedAttention>(s, AttentionProducts(s, options_.precision), device);
  }
  std::unique_ptr<Layer> part(Cut cut, std::size_t, std::size_t ranks) const override {
    if (cut != Cut::between) return nullptr;
    if (options_.heads % ranks != 0)
      throw core::UsageError(
          fmt::format("attention has {} heads, which {} tensor ranks cannot share evenly; make heads a multiple of {}",
                      options_.heads, ranks, ranks));
    AttentionOptions o = options_;
    o.heads /= ranks, o.width /= ranks;
    return std::make_unique<AttentionLayer>(steps_, o);
  }

 private:
  AttentionSizes sizes(std::size_t samples) const {
    return {samples, steps_, options_.heads, options_.width / options_.heads};
  }

  std::size_t steps_;
  AttentionOptions options_;
};

}  // namespace

std::unique_ptr<Layer> make_attention_layer(std::size_t steps, const AttentionOptions& o) {
  return std::make_unique<AttentionLayer>(steps, o);
}

}  // namespace gradmeter::model
