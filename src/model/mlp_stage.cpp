#include "model/mlp_stage.hpp"

#include <algorithm>

#include "kernels/aligned.hpp"
#include "kernels/pointwise.hpp"
#include "kernels/threads.hpp"

namespace gradmeter::model {
std::span<float> Allotment::take(std::size_t floats, bool seen_by_peers) {
  constexpr std::size_t line = kernels::cache_line_bytes / sizeof(float);
  Block& b = seen_by_peers ? seen_ : own_;
  const std::size_t at = b.used;
  b.used += (floats + line - 1) / line * line;
  return b.memory.empty() ? std::span<float>{} : b.memory.subspan(at, floats);
}

StageMemory lay_out(const MlpShard& shard, std::size_t slots, std::size_t samples, Allotment& from) {
  const auto layers = shard.layers();
  const bool first = layers.front().first, last = layers.back().last;
  const auto take = [&](std::size_t width, bool seen) { return from.take(samples * width, seen); };
  StageMemory m{.slots = std::vector<StageSlot>(slots), .deltas = {}};
  for (StageSlot& s : m.slots) {
    if (!first) s.input = take(layers.front().in, true);
    for (const MlpLayer& l : layers) {
      const bool is_sent = &l == &layers.back() && !last;
      s.outputs.push_back(take(l.out, l.cut == Cut::inputs || is_sent));
    }
    s.top_delta = take(layers.back().out, !last);
    if (!first) s.input_delta = take(layers.front().in, true);
  }
  // The gradient by a layer's input is the delta of the layer below.
  for (std::size_t l = 0; l + 1 < layers.size(); ++l)
    m.deltas.push_back(take(layers[l].out, layers[l + 1].cut == Cut::outputs));
  return m;
}

MlpStage::MlpStage(const MlpShard& shard, const Part& part, std::string gemm_backend)
    : shard_(shard), peers_(part.peers), gemm_backend_(std::move(gemm_backend)) {}

MlpStage::Products MlpStage::prepare(const MlpLayer& l, std::size_t samples) const {
  Products p{.problems = products_of(l, samples), .forward = {}, .weight = {}, .input = {}};
  p.forward = kernels::make_gemm(p.problems.forward, gemm_backend_);
  p.weight = kernels::make_gemm(p.problems.weight_gradient, gemm_backend_);
  if (!l.first) p.input = kernels::make_gemm(p.problems.input_gradient, gemm_backend_);
  return p;
}

std::vector<MlpStage::Products>& MlpStage::prepared(std::size_t samples) {
  const int threads = kernels::compute_threads();
  for (Prepared& p : prepared_)
    if (p.samples == samples && p.threads == threads) return p.layers;
  Prepared& made = prepared_.emplace_back(Prepared{samples, threads, {}});
  for (const MlpLayer& l : shard_.layers()) made.layers.push_back(prepare(l, samples));
  return made.layers;
}

void MlpStage::forward(const Pass& pass, const StageSlot& slot) {
  std::vector<Products>& products = prepared(pass.samples);
  std::span<const float> input = pass.input;
  for (std::size_t i = 0; i < products.size(); ++i) {
    const MlpLayer& l = shard_.layers()[i];
    const std::span<float> output = slot.outputs[i].first(pass.samples * l.out);
    const auto weight = span_of(pass.parameters, shard_.weight(l)), bias = span_of(pass.parameters, shard_.bias(l));
    const bool is_summed = l.cut == Cut::inputs;
    pass.queue.submit("forward.gemm", cost(products[i].problems.forward), [&] {
      products[i].forward->run(input, weight, is_summed ? std::span<const float>{} : bias, output);
    });
    if (is_summed) {
      peers_->sum(output);
      add_bias(pass.queue, l, bias, output);
    }
    input = output;
  }
}

// After the sum, or every rank would add it once.
void MlpStage::add_bias(Queue& queue, const MlpLayer& l, std::span<const float> bias, std::span<float> output) const {
  const double elements = static_cast<double>(output.size());
  queue.submit("forward.bias", {.flops = elements, .bytes = 8 * elements}, [&] {
    for (std::size_t row = 0; row < output.size(); row += l.out) {
      float* const y = output.data() + row;
      if (l.last) {
        for (std::size_t o = 0; o < l.out; ++o) y[o] += bias[o];
      } else {
        for (std::size_t o = 0; o < l.out; ++o) y[o] = std::max(y[o] + bias[o], 0.0F);
      }
    }
  });
}

void MlpStage::backward(const Pass& pass, const StageSlot& slot, std::span<const std::span<float>> deltas,
                        std::span<float> gradients, const Model::Ready& ready) {
  std::vector<Products>& products = prepared(pass.samples);
  const auto layers = shard_.layers();
  for (std::size_t i = layers.size(); i-- > 0;) {
    const MlpLayer& l = layers[i];
    const auto input = i == 0 ? pass.input : slot.outputs[i - 1].first(pass.samples * l.in);
    const auto delta = (i + 1 == layers.size() ? slot.top_delta : deltas[i]).first(pass.samples * l.out);
    weight_gradients(pass, products[i], l, input, delta, gradients, ready);
    if (l.first) break;
    const auto below = (i == 0 ? slot.input_delta : deltas[i - 1]).first(pass.samples * l.in);
    pass.queue.submit("backward.gemm", cost(products[i].problems.input_gradient),
                      [&] { products[i].input->run(delta, span_of(pass.parameters, shard_.weight(l)), {}, below); });
    if (l.cut == Cut::outputs) peers_->sum(below);
    if (i == 0) break;
    pass.queue.submit("backward.relu", {.flops = 0, .bytes = 12.0 * static_cast<double>(below.size())},
                      [&] { kernels::relu_backward(input, below); });
  }
}

// Before the gradient by the layer's input, so that the exchange of this one starts meanwhile.
void MlpStage::weight_gradients(const Pass& pass, Products& p, const MlpLayer& l, std::span<const float> input,
                                std::span<const float> delta, std::span<float> gradients,
                                const Model::Ready& ready) const {
  pass.queue.submit("backward.gemm", cost(p.problems.weight_gradient),
                    [&] { p.weight->run(delta, input, {}, span_of(gradients, shard_.weight(l))); });
  shard_.zero_padding(gradients, l.weight);
  ready(l.weight);
  const double elements = static_cast<double>(delta.size());
  pass.queue.submit("backward.bias", {.flops = elements, .bytes = 4 * elements},
                    [&] { kernels::column_sums(delta, l.out, span_of(gradients, shard_.bias(l))); });
  shard_.zero_padding(gradients, l.bias);
  ready(l.bias);
}

std::vector<std::size_t> MlpStage::forward_sums(std::size_t samples) const {
  std::vector<std::size_t> floats;
  for (const MlpLayer& l : shard_.layers())
    if (l.cut == Cut::inputs) floats.push_back(samples * l.out);
  return floats;
}

std::vector<std::size_t> MlpStage::sums(std::size_t samples) const {
  std::vector<std::size_t> floats = forward_sums(samples);
  for (const MlpLayer& l : shard_.layers())
    if (l.cut == Cut::outputs && !l.first) floats.push_back(samples * l.in);
  return floats;
}

}  // namespace gradmeter::model
