#include "model/mlp_stage.hpp"

#include <algorithm>
#include <stdexcept>

#include "kernels/aligned.hpp"
#include "kernels/pointwise.hpp"
#include "kernels/threads.hpp"

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

/// Fills a tensor's gradient and zeroes the gap behind it.
template <class Fill>
void write_gradient(const Buffer& padded, std::size_t count, const Fill& fill) {
  const std::span<float> all = padded.values<float>();
  fill(all.first(count));
  std::ranges::fill(all.subspan(count), 0.0F);
}

}  // namespace

Buffer Allotment::take(std::size_t floats, bool seen_by_peers) {
  constexpr std::size_t line = kernels::cache_line_bytes / sizeof(float);
  Block& b = seen_by_peers ? seen_ : own_;
  const std::size_t at = b.used;
  b.used += (floats + line - 1) / line * line;
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

void MlpStage::sum(const Buffer& partial) const {
  if (!peers_) throw std::logic_error("mlp: a part of a layer cannot be run without its peers");
  peers_->sum(partial);
}

void MlpStage::forward(const Pass& pass, const StageSlot& slot) {
  std::vector<Products>& products = prepared(pass.samples);
  ConstBuffer input = pass.input;
  for (std::size_t i = 0; i < products.size(); ++i) {
    const MlpLayer& l = shard_.layers()[i];
    const Buffer output = slot.outputs[i].part(0, pass.samples * l.out);
    const ConstBuffer weight = part_of(pass.parameters, shard_.weight(l));
    const ConstBuffer bias = part_of(pass.parameters, shard_.bias(l));
    const bool is_summed = l.cut == Cut::inputs;
    pass.queue.submit(
        "forward.gemm", cost(products[i].problems.forward),
        [gemm = products[i].forward.get(), input, weight, added = is_summed ? bias.part(0, 0) : bias, output] {
          gemm->run(input.values<float>(), weight.values<float>(), added.values<float>(), output.values<float>());
        });
    if (is_summed) {
      sum(output);
      add_bias(pass.queue, l, bias, output);
    }
    input = output;
  }
}

void MlpStage::backward(const Pass& pass, const StageSlot& slot, std::span<const Buffer> deltas,
                        const Buffer& gradients, const Model::Ready& ready) {
  std::vector<Products>& products = prepared(pass.samples);
  const auto layers = shard_.layers();
  for (std::size_t i = layers.size(); i-- > 0;) {
    const MlpLayer& l = layers[i];
    const ConstBuffer input = i == 0 ? pass.input : slot.outputs[i - 1].part(0, pass.samples * l.in);
    const Buffer delta = (i + 1 == layers.size() ? slot.top_delta : deltas[i]).part(0, pass.samples * l.out);
    weight_gradients(pass, products[i], l, input, delta, gradients, ready);
    if (l.first) break;
    const Buffer below = (i == 0 ? slot.input_delta : deltas[i - 1]).part(0, pass.samples * l.in);
    pass.queue.submit("backward.gemm", cost(products[i].problems.input_gradient),
                      [gemm = products[i].input.get(), delta, weight = part_of(pass.parameters, shard_.weight(l)),
                       below] { gemm->run(delta.values<float>(), weight.values<float>(), {}, below.values<float>()); });
    if (l.cut == Cut::outputs) sum(below);
    if (i == 0) break;
    pass.queue.submit("backward.relu", {.flops = 0, .bytes = 12.0 * static_cast<double>(below.count())},
                      [input, below] { kernels::relu_backward(input.values<float>(), below.values<float>()); });
  }
}

// Before the gradient by the layer's input, so that the exchange of this one starts meanwhile.
void MlpStage::weight_gradients(const Pass& pass, const Products& p, const MlpLayer& l, const ConstBuffer& input,
                                const ConstBuffer& delta, const Buffer& gradients, const Model::Ready& ready) const {
  const Tensor &weight = shard_.weight(l), &bias = shard_.bias(l);
  pass.queue.submit(
      "backward.gemm", cost(p.problems.weight_gradient),
      [gemm = p.weight.get(), delta, input, to = MlpShard::with_padding(gradients, weight), count = weight.count] {
        write_gradient(to, count,
                       [&](std::span<float> g) { gemm->run(delta.values<float>(), input.values<float>(), {}, g); });
      });
  ready(l.weight);
  const double elements = static_cast<double>(delta.count());
  pass.queue.submit(
      "backward.bias", {.flops = elements, .bytes = 4 * elements},
      [delta, width = l.out, to = MlpShard::with_padding(gradients, bias), count = bias.count] {
        write_gradient(to, count, [&](std::span<float> g) { kernels::column_sums(delta.values<float>(), width, g); });
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
