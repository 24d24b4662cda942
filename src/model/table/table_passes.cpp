#include "model/table/table_passes.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/random.hpp"
#include "kernels/aligned.hpp"
#include "kernels/threads.hpp"

namespace gradmeter::model {
namespace {

constexpr std::size_t distances = 7;  // of random gradients, in cache lines

/// Of random gradients, so that an update is small beside the weights, whatever the table: weights start at 0.01 to
/// 0.1, and a gradient of a weight is a sum over up to 10^4 rows a sample.
double gradient_size(std::size_t samples) { return 3e-5 / std::sqrt(static_cast<double>(samples)); }

/// Which rows of its table an embedding looks up: the same in both passes.
std::size_t looked_up(std::size_t i, std::size_t vocabulary) {
  return static_cast<std::size_t>(core::Random(0, 0).below(i, vocabulary));
}

}  // namespace

TablePasses::TablePasses(std::span<const TableLayer> layers, std::span<const TensorPlace> tensors,
                         const TableSetting& s, Queue& queue, std::uint64_t seed)
    : layers_(layers),
      tensors_(tensors),
      setting_(s),
      threads_(kernels::compute_threads()),
      device_(queue.device()),
      calls_(make_table_calls(layers, tensors, s, queue, seed << 32)) {
  const auto allocate = [&](std::size_t bytes) { return device_.allocate(core::Element::i8, bytes); };
  scratch_ = allocate(calls_.scratch_bytes);
  for (std::size_t i = 0; i < flows_.size(); ++i) flows_[i] = allocate(calls_.flow_bytes[i]);
  const auto random = [&](const kernels::NumberFormat& format, std::size_t bytes, std::uint64_t number) {
    RandomGradient r{&format, {}};
    const double size = gradient_size(s.samples);
    for (std::size_t sign = 0; sign < 2; ++sign) {
      r.signs[sign] = allocate(bytes + distances * kernels::cache_line_bytes);
      queue.at_once(
          [&] { fill_random(r.signs[sign].buffer, format, (seed << 32) + number, sign == 0 ? size : -size); });
    }
    return r;
  };
  for (const auto& r : calls_.random_gradients)
    random_gradients_.push_back(random(*r.format, r.bytes, random_gradients_.size()));
  std::size_t largest = 1;
  for (std::size_t l = 0; l < layers_.size(); ++l)
    for (const std::size_t row : layers_[l].rows) largest = std::max(largest, tensors_[row].count);
  computed_by_none_ = random(kernels::number_format(core::Element::f32), largest * sizeof(float), 99);
}

bool TablePasses::fits(std::size_t samples, Queue& queue) const {
  return samples == setting_.samples && threads_ == kernels::compute_threads() && &device_ == &queue.device();
}

Buffer TablePasses::random_part(const Place& p) const {
  const auto r = std::ranges::find_if(random_gradients_, [&](const auto& g) { return *g.format == *p.format; });
  return r->signs[turn_ / distances % 2].buffer.part(turn_ % distances * kernels::cache_line_bytes, p.bytes);
}

Buffer TablePasses::memory_of(const Place& p) const {
  switch (p.kind) {
    case Place::Kind::scratch:
      return scratch_.buffer.part(p.first, p.bytes);
    case Place::Kind::flow:
      return flows_[p.first].buffer.part(0, p.bytes);
    case Place::Kind::random_gradient:
      return random_part(p);
    default:
      return p.memory;
  }
}

/// Brings the weights that it reads into their stored form before it, and the gradients that it writes back after.
void TablePasses::run(Queue& queue, const Call& c, const ConstBuffer& parameters, const Buffer& gradients) {
  std::vector<ConstBuffer> inputs;
  for (const Place& p : c.inputs) {
    if (p.kind != Place::Kind::tensor) {
      inputs.emplace_back(memory_of(p));
      continue;
    }
    const ConstBuffer flat = parameters.part(p.first, p.count);
    if (!p.conversion) {
      inputs.push_back(flat);
      continue;
    }
    const Buffer stored = scratch_.buffer.part(p.stored_at, p.bytes);
    p.conversion->run(queue, c.conversion_label, {flat}, {stored});
    inputs.emplace_back(stored);
  }
  std::vector<Buffer> outputs;
  for (const Place& p : c.outputs) {
    const bool is_tensor = p.kind == Place::Kind::tensor;
    Buffer to = !is_tensor     ? memory_of(p)
                : p.conversion ? scratch_.buffer.part(p.stored_at, p.bytes)
                               : gradients.part(p.first, p.count);
    if (p.is_added_to)
      queue.submit(c.conversion_label, {.flops = 0, .bytes = static_cast<double>(to.bytes())},
                   [to] { std::memset(to.host(), 0, to.bytes()); });
    outputs.push_back(to);
  }
  c.op->run(queue, c.label, inputs, outputs);
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const Place& p = c.outputs[i];
    if (p.conversion) p.conversion->run(queue, c.conversion_label, {outputs[i]}, {gradients.part(p.first, p.count)});
  }
}

void TablePasses::forward(Queue& queue, const ConstBuffer& parameters) {
  for (std::size_t l = 0; l < layers_.size(); ++l) {
    queue.enter_layer(static_cast<int>(l));
    if (layers_[l].kind == TableLayer::Kind::embedding) embed(queue, l, parameters);
    for (const Call& c : calls_.layers[l].forward) run(queue, c, parameters, runtime::no_floats);
  }
  queue.enter_layer(Queue::no_layer);
}

void TablePasses::backward(Queue& queue, Buffers b, std::uint64_t turn,
                           const std::function<void(std::size_t row)>& ready) {
  turn_ = turn;
  for (std::size_t l = layers_.size(); l-- > 0;) {
    const LayerCalls& calls = calls_.layers[l];
    queue.enter_layer(static_cast<int>(l));
    for (const Call& c : calls.weight_gradients) run(queue, c, b.parameters, b.gradients);
    if (layers_[l].kind == TableLayer::Kind::embedding) embedding_gradient(queue, l, b.gradients);
    fill_tensors(queue, l, b.gradients, ready);
    for (const Call& c : calls.input_gradients) run(queue, c, b.parameters, b.gradients);
  }
  queue.enter_layer(Queue::no_layer);
}

void TablePasses::embed(Queue& queue, std::size_t layer, const ConstBuffer& parameters) const {
  const TableLayer& l = layers_[layer];
  const TensorPlace t = tensor(l.rows.front());
  const Buffer to = calls_.layers[layer].output.memory;
  queue.submit("forward.embedding", {.flops = 0, .bytes = 2.0 * static_cast<double>(to.bytes())},
               [to, table = parameters.part(t.first, t.count), width = l.width, vocabulary = l.vocabulary] {
                 const std::size_t row = width * sizeof(float);
                 for (std::size_t i = 0; i * row < to.bytes(); ++i)
                   std::memcpy(to.host() + i * row, table.host() + looked_up(i, vocabulary) * row, row);
               });
}

/// Of a tied one a product has written the gradient before; else it is zero but for the rows that were looked up.
void TablePasses::embedding_gradient(Queue& queue, std::size_t layer, const Buffer& gradients) const {
  const TableLayer& l = layers_[layer];
  const TensorPlace t = tensor(l.rows.front());
  const Buffer from = memory_of(calls_.layers[layer].output_gradient), to = gradients.part(t.first, t.count);
  const double bytes = (l.is_tied ? 0.0 : static_cast<double>(to.bytes())) + 3.0 * static_cast<double>(from.bytes());
  queue.submit("backward.embedding", {.flops = 0, .bytes = bytes},
               [from, to, width = l.width, vocabulary = l.vocabulary, adds = l.is_tied] {
                 const std::span<float> table = to.values<float>();
                 if (!adds) std::ranges::fill(table, 0.0F);
                 const auto* const rows = reinterpret_cast<const float*>(from.host());
                 for (std::size_t i = 0; i * width * sizeof(float) < from.bytes(); ++i) {
                   float* const sum = &table[looked_up(i, vocabulary) * width];
                   for (std::size_t c = 0; c < width; ++c) sum[c] += rows[i * width + c];
                 }
               });
}

/// The layer's tensors are final now: those that no operation has written get random numbers.
void TablePasses::fill_tensors(Queue& queue, std::size_t layer, const Buffer& gradients,
                               const std::function<void(std::size_t)>& ready) {
  const TableLayer& l = layers_[layer];
  if (l.is_tied && l.computes()) return;  // the embedding announces it
  const Buffer random = computed_by_none_.signs[turn_ / distances % 2].buffer;
  // A recurrent operation writes the gradients of its weights and of one bias.
  const bool is_fused = l.kind == TableLayer::Kind::recurrent && l.rows.size() < 3;
  const std::size_t written = l.kind == TableLayer::Kind::tensor      ? 0
                              : l.kind == TableLayer::Kind::recurrent ? (is_fused ? 2 : 3)
                                                                      : 1;
  for (std::size_t i = l.rows.size(); i-- > 0;) {
    if (i >= written) {
      const TensorPlace t = tensor(l.rows[i]);
      const Buffer from = random.part(turn_ % distances * kernels::cache_line_bytes, t.count * sizeof(float));
      queue.copy("backward.copy", from, gradients.part(t.first, t.count));
    }
    ready(l.rows[i]);
  }
}

}  // namespace gradmeter::model
