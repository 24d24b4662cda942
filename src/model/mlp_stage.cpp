#include "model/mlp_stage.hpp"

#include <algorithm>
#include <array>
#include <stdexcept>

#include "kernels/aligned.hpp"
#include "kernels/pointwise.hpp"
#include "kernels/threads.hpp"
#include "model/passes.hpp"

namespace gradmeter::model {
namespace {

// After the sum over tensor ranks, or every rank would add it once.
void add_bias(Queue& queue, const MlpLayer& l, const ConstBuffer& bias, const Buffer& output) {
  const double elements = static_cast<double>(output.count());
  queue.submit("forward.bias", {.flops = elements, .bytes = 8 * elements},
               [width = l.out, last = l.last, bias, output] {
                 const std::span<const float> b = bias.values<float>();
                 const std::span<float> rows = output.values<float>();
                 for (std::size_t row = 0; row < rows.size(); row += width) {
                   float* const y = rows.data() + row;
                   if (last) {
                     for (std::size_t o = 0; o < width; ++o) y[o] += b[o];
                   } else {
                     for (std::size_t o = 0; o < width; ++o) y[o] = std::max(y[o] + b[o], 0.0F);
                   }
                 }
               });
}

/// Zeroes what lies behind a weight's gradient. Few shapes leave a gap there.
void zero_gap(Queue& queue, const Buffer& gradients, const Tensor& t) {
  const Buffer padded = MlpShard::with_padding(gradients, t);
  const Buffer gap = padded.part(t.count, padded.count() - t.count);
  if (gap.count() == 0) return;
  queue.submit("backward.gap", {.flops = 0, .bytes = static_cast<double>(gap.bytes())},
               [gap] { std::ranges::fill(gap.values<float>(), 0.0F); });
}

}  // namespace

Buffer Allotment::take(std::size_t floats, bool seen_by_peers) {
  Block& b = seen_by_peers ? seen_ : own_;
  const std::size_t at = b.used;
  b.used += kernels::whole_lines(floats);
  return b.memory.count() == 0 ? b.memory : b.memory.part(at, floats);
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

MlpStage::Products MlpStage::prepare(const MlpLayer& l, std::size_t samples, runtime::Device& device) const {
  const LayerProducts problems = products_of(l, samples);
  const auto prepared = [&](const kernels::GemmShape& s) {
    return kernels::prepare({.shape = s}, {.backend = gemm_backend_}, device);
  };
  return {.forward = prepared(problems.forward),
          .weight = prepared(problems.weight_gradient),
          .input = l.first ? nullptr : prepared(problems.input_gradient)};
}

std::vector<MlpStage::Products>& MlpStage::prepared(const Pass& pass) {
  const int threads = kernels::compute_threads();
  runtime::Device& device = pass.queue.device();
  for (Prepared& p : prepared_)
    if (p.samples == pass.samples && p.threads == threads && p.device == &device) return p.layers;
  Prepared& made = prepared_.emplace_back(Prepared{pass.samples, threads, &device, {}});
  for (const MlpLayer& l : shard_.layers()) made.layers.push_back(prepare(l, pass.samples, device));
  return made.layers;
}

void MlpStage::sum(const Buffer& partial) const {
  if (!peers_) throw std::logic_error("mlp: a part of a layer cannot be run without its peers");
  peers_->sum(partial);
}

void MlpStage::forward(const Pass& pass, const StageSlot& slot) {
  const std::vector<Products>& products = prepared(pass);
  ConstBuffer input = pass.input;
  for (std::size_t i = 0; i < products.size(); ++i) {
    const MlpLayer& l = shard_.layers()[i];
    const Buffer output = slot.outputs[i].part(0, pass.samples * l.out);
    const ConstBuffer weight = part_of(pass.parameters, shard_.weight(l));
    const ConstBuffer bias = part_of(pass.parameters, shard_.bias(l));
    const bool is_summed = l.cut == Cut::inputs;
    const std::array operands{input, weight, bias};
    products[i].forward->run(pass.queue, "forward.gemm", std::span(operands).first(is_summed ? 2 : 3), {&output, 1});
    if (is_summed) {
      sum(output);
      add_bias(pass.queue, l, bias, output);
    }
    input = output;
  }
}

void MlpStage::backward(const Pass& pass, const StageSlot& slot, std::span<const Buffer> deltas,
                        const Buffer& gradients, const Model::Ready& ready) {
  const std::vector<Products>& products = prepared(pass);
  const auto layers = shard_.layers();
  for (std::size_t i = layers.size(); i-- > 0;) {
    const MlpLayer& l = layers[i];
    const ConstBuffer input = i == 0 ? pass.input : slot.outputs[i - 1].part(0, pass.samples * l.in);
    const Buffer delta = (i + 1 == layers.size() ? slot.top_delta : deltas[i]).part(0, pass.samples * l.out);
    weight_gradients(pass, products[i], l, input, delta, gradients, ready);
    if (l.first) break;
    const Buffer below = (i == 0 ? slot.input_delta : deltas[i - 1]).part(0, pass.samples * l.in);
    products[i].input->run(pass.queue, "backward.gemm", {delta, part_of(pass.parameters, shard_.weight(l))}, {below});
    if (l.cut == Cut::outputs) sum(below);
    if (i == 0) break;
    submit_relu_backward(pass.queue, input, below);
  }
}

// Before the gradient by the layer's input, so that the exchange of this one starts meanwhile.
void MlpStage::weight_gradients(const Pass& pass, const Products& p, const MlpLayer& l, const ConstBuffer& input,
                                const ConstBuffer& delta, const Buffer& gradients, const Model::Ready& ready) const {
  const Tensor &weight = shard_.weight(l), &bias = shard_.bias(l);
  p.weight->run(pass.queue, "backward.gemm", {delta, input}, {part_of(gradients, weight)});
  zero_gap(pass.queue, gradients, weight);
  ready(l.weight);
  const double elements = static_cast<double>(delta.count());
  pass.queue.submit("backward.bias", {.flops = elements, .bytes = 4 * elements},
                    [delta, width = l.out, to = MlpShard::with_padding(gradients, bias)] {
                      const std::span<float> all = to.values<float>();
                      kernels::column_sums(delta.values<float>(), width, all.first(width));
                      std::ranges::fill(all.subspan(width), 0.0F);
                    });
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
