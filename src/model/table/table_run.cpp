// SPDX-License-Identifier: Apache-2.0
#include "model/table/table_run.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/random.hpp"
#include "kernels/host/memory.hpp"
#include "model/layers/operations.hpp"

namespace gradmeter::model {
namespace {

using runtime::Buffer;
using runtime::ConstBuffer;
using runtime::Queue;

/// The number of offsets at which a pass may begin to read random gradients: 0 to 6 cache lines.
constexpr std::size_t random_offsets = 7;

/// The magnitude of random gradients. It is so small that an update is small beside the weights of any table: weights
/// start at 0.01 to 0.1, and a weight's gradient is a sum over up to 10^4 rows a sample.
double gradient_size(std::size_t samples) { return 3e-5 / std::sqrt(static_cast<double>(samples)); }

/// The table row that an embedding looks up i-th: the same in both passes.
std::size_t looked_up(std::size_t i, std::size_t vocabulary) {
  return static_cast<std::size_t>(core::Random(0, 0).below(i, vocabulary));
}

}  // namespace

TableWorkspace::TableWorkspace(Needs n, std::uint64_t worker) : needs(std::move(n)) {
  const std::unique_ptr<Queue> queue = needs.device->make_queue();
  const auto allocate = [&](std::size_t bytes) { return needs.device->allocate(core::Element::i8, bytes); };
  scratch = allocate(needs.scratch_bytes);
  for (std::size_t i = 0; i < flows.size(); ++i) flows[i] = allocate(needs.flow_bytes[i]);
  const auto random = [&](const kernels::NumberFormat& format, std::size_t bytes, std::uint64_t number) {
    RandomGradient r{&format, {}};
    const double size = gradient_size(needs.samples);
    for (std::size_t sign = 0; sign < 2; ++sign) {
      r.signs[sign] = allocate(bytes + random_offsets * kernels::cache_line_bytes);
      queue->run_and_wait(
          [&] { fill_random(r.signs[sign].buffer, format, ((worker + 1) << 32) + number, sign == 0 ? size : -size); });
    }
    return r;
  };
  for (const auto& r : needs.random_gradients)
    random_gradients.push_back(random(*r.format, r.bytes, random_gradients.size()));
  copied_gradient = random(kernels::number_format(core::Element::f32), needs.copied_floats * sizeof(float), 99);
}

TableRun::TableRun(TableRunShape shape, runtime::Device& device, std::uint64_t worker, TableWorkspaces& workspaces)
    : shape_(std::move(shape)), worker_(worker) {
  calls_ = make_table_calls(shape_, *device.make_queue(), (worker + 1) << 32);
  TableWorkspace::Needs needs{.device = &device,
                              .samples = shape_.samples,
                              .scratch_bytes = calls_.scratch_bytes,
                              .flow_bytes = calls_.flow_bytes,
                              .random_gradients = calls_.random_gradients,
                              .copied_floats = 0};
  for (const RunLayer& l : shape_.layers)
    for (std::size_t row = rows_with_computed_gradients(l.layer); row < l.counts.size(); ++row)
      needs.copied_floats = std::max(needs.copied_floats, l.counts[row]);
  std::erase_if(workspaces, [](const auto& w) { return w.expired(); });
  for (const auto& w : workspaces)
    if (auto workspace = w.lock(); workspace->needs == needs) workspace_ = std::move(workspace);
  if (workspace_) return;
  workspace_ = std::make_shared<TableWorkspace>(std::move(needs), worker);
  workspaces.push_back(workspace_);
}

Buffer TableRun::random_part(const Place& p) const {
  const auto r =
      std::ranges::find_if(workspace_->random_gradients, [&](const auto& g) { return *g.format == *p.format; });
  return r->signs[pass_draw_ / random_offsets % 2].buffer.part(pass_draw_ % random_offsets * kernels::cache_line_bytes,
                                                               p.bytes);
}

Buffer TableRun::memory_of(const Place& p) const {
  switch (p.kind) {
    case Place::Kind::scratch:
      return workspace_->scratch.buffer.part(p.first, p.bytes);
    case Place::Kind::flow:
      return workspace_->flows[p.first].buffer.part(0, p.bytes);
    case Place::Kind::random_gradient:
      return random_part(p);
    default:
      return p.memory;
  }
}

/// Runs a call. Before it, converts the weights that the call reads into their stored form; after it, converts the
/// gradients that the call wrote into the form of the flat buffers.
void TableRun::run(Queue& queue, const Call& c, const Tensors& tensors) {
  const auto part = [](const auto& all, const Place& p) { return all[all.size() - 1 - p.row].part(p.first, p.count); };
  std::vector<ConstBuffer> inputs;
  for (const Place& p : c.inputs) {
    if (p.kind != Place::Kind::tensor) {
      inputs.emplace_back(memory_of(p));
      continue;
    }
    const ConstBuffer flat = part(tensors.parameters, p);
    if (!p.conversion) {
      inputs.push_back(flat);
      continue;
    }
    const Buffer stored = workspace_->scratch.buffer.part(p.stored_at, p.bytes);
    p.conversion->run(queue, c.conversion_label, {flat}, {stored});
    inputs.emplace_back(stored);
  }
  std::vector<Buffer> outputs;
  for (const Place& p : c.outputs) {
    const bool is_tensor = p.kind == Place::Kind::tensor;
    Buffer to = !is_tensor     ? memory_of(p)
                : p.conversion ? workspace_->scratch.buffer.part(p.stored_at, p.bytes)
                               : part(tensors.gradients, p);
    if (p.is_added_to) submit_clear(queue, c.conversion_label, to);
    outputs.push_back(to);
  }
  c.op->run(queue, c.label, inputs, outputs);
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const Place& p = c.outputs[i];
    if (p.conversion) p.conversion->run(queue, c.conversion_label, {outputs[i]}, {part(tensors.gradients, p)});
  }
}

void TableRun::enter(Queue& queue, std::string_view label, const std::optional<Crossing>& c, const ConstBuffer& from) {
  if (!c) return;
  if (!c->conversion) return queue.copy(label, from, memory_of(c->place));
  c->conversion->run(queue, label, {from}, {memory_of(c->place)});
}

void TableRun::leave(Queue& queue, std::string_view label, const std::optional<Crossing>& c, const Buffer& to) {
  if (!c) return;
  if (!c->conversion) return queue.copy(label, memory_of(c->place), to);
  c->conversion->run(queue, label, {memory_of(c->place)}, {to});
}

void TableRun::forward(std::size_t layer, const LayerForward& f) {
  if (layer == 0) enter(f.queue, "forward.pack", calls_.input, f.input);
  if (shape_.layers[layer].layer.kind == TableLayer::Kind::embedding) embed(layer, f);
  for (const Call& c : calls_.layers[layer].forward) run(f.queue, c, {f.parameters, {}});
  if (layer + 1 == shape_.layers.size()) leave(f.queue, "forward.pack", calls_.output, f.output);
}

void TableRun::backward(std::size_t layer, const LayerBackward& b) {
  // The draw differs from worker to worker, so that they have different gradients.
  pass_draw_ = core::Random(worker_, 1).bits(b.pass);
  const LayerCalls& calls = calls_.layers[layer];
  if (layer + 1 == shape_.layers.size()) enter(b.queue, "backward.pack", calls_.output_gradient, b.output_gradient);
  for (const Call& c : calls.weight_gradients) run(b.queue, c, {b.parameters, b.gradients});
  if (shape_.layers[layer].layer.kind == TableLayer::Kind::embedding) embedding_gradient(layer, b);
  fill_tensors(layer, b);
  for (const Call& c : calls.input_gradients) run(b.queue, c, {b.parameters, b.gradients});
  if (layer == 0) leave(b.queue, "backward.pack", calls_.input_gradient, b.input_gradient);
}

void TableRun::embed(std::size_t layer, const LayerForward& f) const {
  const TableLayer& l = shape_.layers[layer].layer;
  const Buffer to = calls_.layers[layer].output.memory;
  f.queue.submit("forward.embedding", {.flops = 0, .bytes = 2.0 * static_cast<double>(to.bytes())},
                 [to, table = f.parameters.front(), width = l.width, vocabulary = l.vocabulary] {
                   const std::size_t row = width * sizeof(float);
                   for (std::size_t i = 0; i * row < to.bytes(); ++i)
                     std::memcpy(to.host() + i * row, table.host() + looked_up(i, vocabulary) * row, row);
                 });
}

/// Adds an embedding's gradient. If tied, a product has written the gradient before; else it is zero except for the
/// rows that were looked up.
void TableRun::embedding_gradient(std::size_t layer, const LayerBackward& b) const {
  const TableLayer& l = shape_.layers[layer].layer;
  const Buffer from = memory_of(calls_.layers[layer].output_gradient), to = b.gradients.front();
  const double bytes = (l.is_tied ? 0.0 : static_cast<double>(to.bytes())) + 3.0 * static_cast<double>(from.bytes());
  b.queue.submit("backward.embedding", {.flops = 0, .bytes = bytes},
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

/// Gives random gradients to the layer's tensors whose gradients no operation computes, and announces the gradients of
/// all of its tensors as ready.
void TableRun::fill_tensors(std::size_t layer, const LayerBackward& b) const {
  const auto& [l, counts, _] = shape_.layers[layer];
  const Buffer random = workspace_->copied_gradient.signs[pass_draw_ / random_offsets % 2].buffer;
  const std::size_t written = rows_with_computed_gradients(l);
  for (std::size_t row = counts.size(), tensor = 0; row-- > 0; ++tensor) {
    if (row >= written) {
      const Buffer from =
          random.part(pass_draw_ % random_offsets * kernels::cache_line_bytes, counts[row] * sizeof(float));
      b.queue.copy("backward.copy", from, b.gradients[tensor]);
    }
    b.ready(tensor);
  }
}

}  // namespace gradmeter::model
