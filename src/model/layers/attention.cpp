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
  std::size_t tokens() const { return samples * steps * heads * head_width; }
  std::size_t scores() const { return samples * heads * steps * steps; }
};

/// Forward gives scores and context, backward the gradients of probabilities, values, queries and keys.
struct AttentionProducts {
  Problem scores, context, of_values, of_keys;
  AttentionProducts(const AttentionSizes& s, kernels::Precision precision) {
    const std::size_t t = s.steps, d = s.head_width, count = s.samples * s.heads;
    const auto problem = [&](const GemmShape& shape) { return Problem{.shape = shape, .precision = precision}; };
    scores = problem({.m = t, .n = t, .k = d, .transpose_b = Transpose::yes, .count = count});
    context = problem({.m = t, .n = d, .k = t, .count = count});
    of_values = of_keys = problem({.m = t, .n = d, .k = t, .transpose_a = Transpose::yes, .count = count});
  }
  const Problem& of_probabilities() const { return scores; }
  const Problem& of_queries() const { return context; }
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
      : s_(s),
        scale_(1 / std::sqrt(static_cast<float>(s.head_width))),
        scores_(p.scores, device),
        context_(p.context, device),
        of_probabilities_(p.of_probabilities(), device),
        of_values_(p.of_values, device),
        of_queries_(p.of_queries(), device),
        of_keys_(p.of_keys, device) {
    for (OwnedBuffer* const b : {&parts_, &part_gradients_}) *b = device.allocate(core::Element::f32, 3 * s.tokens());
    for (OwnedBuffer* const b : {&probabilities_, &gradient_}) *b = device.allocate(core::Element::f32, s.scores());
    contexts_ = device.allocate(core::Element::f32, s.tokens());
  }

  void forward(const LayerForward& f) override {
    reorder(f.queue, "forward.heads", s_, HeadOrder::to_heads, f.input, parts_.buffer);
    const Buffer p = probabilities_.buffer;
    scores_.run(f.queue, "forward.gemm", "forward.pack", {part(parts_, query), part(parts_, key)}, {p});
    const double n = static_cast<double>(p.count());
    f.queue.submit("forward.attention_softmax", {.flops = 6 * n, .bytes = 8 * n},
                   [p, s = s_, scale = scale_] { kernels::loops().causal_softmax(p, s.steps, scale); });
    context_.run(f.queue, "forward.gemm", "forward.pack", {p, part(parts_, value)}, {contexts_.buffer});
    reorder(f.queue, "forward.heads", s_, HeadOrder::to_tokens, contexts_.buffer, f.output);
  }

  void backward(const LayerBackward& b) override {
    if (b.input_gradient.count() == 0) return;
    const Buffer p = probabilities_.buffer, g = gradient_.buffer, delta = contexts_.buffer;
    reorder(b.queue, "backward.heads", s_, HeadOrder::to_heads, b.output_gradient, delta);
    product(b, of_values_, p, delta, part(part_gradients_, value));
    product(b, of_probabilities_, delta, part(parts_, value), g);
    const double n = static_cast<double>(g.count());
    b.queue.submit("backward.attention_softmax", {.flops = 5 * n, .bytes = 12 * n},
                   [p, g, s = s_, scale = scale_] { kernels::loops().causal_softmax_backward(p, g, s.steps, scale); });
    product(b, of_queries_, g, part(parts_, key), part(part_gradients_, query));
    product(b, of_keys_, g, part(parts_, query), part(part_gradients_, key));
    reorder(b.queue, "backward.heads", s_, HeadOrder::to_tokens, part_gradients_.buffer, b.input_gradient);
  }

 private:
  static constexpr std::size_t query = 0, key = 1, value = 2;
  Buffer part(const OwnedBuffer& joined, std::size_t which) const {
    return joined.buffer.part(which * s_.tokens(), s_.tokens());
  }
  static void product(const LayerBackward& b, PlainOp& op, const ConstBuffer& left, const ConstBuffer& right,
                      const Buffer& to) {
    op.run(b.queue, "backward.gemm", "backward.pack", {left, right}, {to});
  }

  AttentionSizes s_;
  float scale_;
  PlainOp scores_, context_, of_probabilities_, of_values_, of_queries_, of_keys_;
  OwnedBuffer parts_, part_gradients_;  // [queries, keys, values][samples × heads × steps × head width]
  // [samples × heads × steps × steps]; the gradient is that of probabilities, then of scores
  OwnedBuffer probabilities_, gradient_;
  OwnedBuffer contexts_;  // contexts of forward, then their gradient
};

class AttentionLayer final : public Layer {
 public:
  AttentionLayer(std::size_t steps, const AttentionOptions& o) : steps_(steps), o_(o) {
    if (o.heads == 0 || o.width % o.heads != 0)
      throw core::UsageError(
          fmt::format("{} heads do not divide a width of {}; give numbers of heads and hidden units so that they do",
                      o.heads, o.width));
  }
  std::string name() const override { return fmt::format("attention:{}x{}", o_.heads, o_.width / o_.heads); }
  SampleShape input() const override { return TokenShape{.steps = steps_, .features = 3 * o_.width}; }
  SampleShape output() const override { return TokenShape{.steps = steps_, .features = o_.width}; }
  std::span<const LayerTensor> tensors() const override { return {}; }
  LayerProblems problems(std::size_t samples, bool input_gradient) const override {
    const AttentionProducts p(sizes(samples), o_.precision);
    LayerProblems problems{.forward = {p.scores, p.context}, .backward = {}};
    if (input_gradient) problems.backward = {p.of_values, p.of_probabilities(), p.of_queries(), p.of_keys};
    return problems;
  }
  std::size_t activation_elements() const override { return 7 * sizes(1).tokens() + 2 * sizes(1).scores(); }
  std::unique_ptr<PreparedLayer> prepare(std::size_t samples, bool, runtime::Device& device) const override {
    const AttentionSizes s = sizes(samples);
    return std::make_unique<PreparedAttention>(s, AttentionProducts(s, o_.precision), device);
  }
  std::unique_ptr<Layer> part(Cut cut, std::size_t, std::size_t ranks) const override {
    if (cut != Cut::between) return nullptr;
    if (o_.heads % ranks != 0)
      throw core::UsageError(
          fmt::format("attention has {} heads, which {} tensor ranks cannot share evenly; make heads a multiple of {}",
                      o_.heads, ranks, ranks));
    AttentionOptions o = o_;
    o.heads /= ranks, o.width /= ranks;
    return std::make_unique<AttentionLayer>(steps_, o);
  }

 private:
  AttentionSizes sizes(std::size_t samples) const { return {samples, steps_, o_.heads, o_.width / o_.heads}; }

  std::size_t steps_;
  AttentionOptions o_;
};

}  // namespace

std::unique_ptr<Layer> make_attention_layer(std::size_t steps, const AttentionOptions& o) {
  return std::make_unique<AttentionLayer>(steps, o);
}

}  // namespace gradmeter::model
