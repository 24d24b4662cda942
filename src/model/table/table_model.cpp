// SPDX-License-Identifier: Apache-2.0
#include "model/table/table_model.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/error.hpp"
#include "core/format.hpp"
#include "core/random.hpp"
#include "kernels/host/memory.hpp"
#include "kernels/host/threads.hpp"

namespace gradmeter::model {
namespace {

constexpr std::size_t distances = 7;  // number of distances of random gradients, in cache lines

/// The size of random gradients: an update is small beside the weights, whatever the table, since weights start at 0.01
/// to 0.1, and a gradient of a weight is a sum over up to 10^4 rows a sample.
double gradient_size(std::size_t samples) { return 3e-5 / std::sqrt(static_cast<double>(samples)); }

/// The table row that an embedding looks up i-th: the same in both passes.
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

/// Converts the weights that a call reads into their stored form before it, and the gradients that it writes back
/// after.
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

/// Adds an embedding's gradient. If tied, a product has written the gradient before; else it is zero except for the
/// rows that were looked up.
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

/// Makes the layer's tensors final: those that no operation has written get random numbers.
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

namespace {

constexpr std::size_t none = SIZE_MAX;

/// The number of inputs of one output, which determines the size of initial weights; 0 if the row is no weight of a
/// product.
double inputs_of(const TableLayer& l) {
  switch (l.kind) {
    case TableLayer::Kind::product:
      return static_cast<double>(std::get<kernels::GemmShape>(l.shape).k);
    case TableLayer::Kind::convolution: {
      const auto& s = std::get<kernels::ConvShape>(l.shape);
      return static_cast<double>(s.channels * s.filter_width * s.filter_height);
    }
    case TableLayer::Kind::recurrent:
      return static_cast<double>(std::get<kernels::RnnShape>(l.shape).hidden);
    default:
      return 0;
  }
}

/// Checks one sample, so that a run is refused before any of it is made.
void require_supported(const TableLayer& l, const TableModelOptions& o) {
  const LayerProblems p = problems_of(l, 1, true, o.precision);
  for (const auto* const pass : {&p.forward, &p.backward})
    for (const kernels::Problem& problem : *pass)
      if (const std::string why = kernels::op_refusal(problem); !why.empty())
        throw core::UsageError(fmt::format("model '{}', layer {}: {}", o.name, l.name, why));
}

/// Checks that fp32 parameters can become operands of this precision.
void require_trainable(const TableModelOptions& o) {
  if (o.precision == kernels::Precision::fp32 || o.precision == kernels::Precision::bf16) return;
  throw core::UsageError(
      fmt::format("model '{}': layer tables run in fp32 and bf16, not in {}", o.name, kernels::name(o.precision)));
}

}  // namespace

TableModel::TableModel(LayerTable table, TableModelOptions options)
    : table_(std::move(table)),
      options_(std::move(options)),
      layers_(layers_of(table_)),
      places_(table_.rows.size()),
      tensor_of_row_(table_.rows.size(), none) {
  require_trainable(options_);
  for (const TableLayer& l : layers_) require_supported(l, options_);
  for (std::size_t row = table_.rows.size(); row-- > 0;) {
    const TableRow& r = table_.rows[row];
    if (r.parameters == 0) continue;
    tensor_of_row_[row] = tensors_.size();
    places_[row] = {element_count_, r.parameters};
    tensors_.push_back({.name = r.layer, .shape = r.shape, .offset = element_count_, .count = r.parameters});
    element_count_ += kernels::whole_lines(r.parameters);
  }
  sum_ = GradientSum(element_count_, options_.micro_batches);
}

TableModel::~TableModel() = default;

std::vector<RepeatedProblem> TableModel::problems(std::size_t samples, bool backward) const {
  std::vector<RepeatedProblem> all;
  const auto add = [&](const std::vector<kernels::Problem>& some) {
    for (const kernels::Problem& p : some) {
      const auto known = std::ranges::find_if(all, [&](const auto& r) { return same_work(r.problem, p); });
      if (known == all.end()) {
        all.push_back({p, 1});
      } else {
        ++known->times;
      }
    }
  };
  bool any_before = false;
  for (const TableLayer& l : layers_) {
    const LayerProblems p = problems_of(l, samples, any_before, options_.precision);
    add(p.forward);
    if (backward) add(p.backward);
    any_before |= l.kind != TableLayer::Kind::tensor;
  }
  return all;
}

std::vector<std::string> TableModel::layer_names() const {
  std::vector<std::string> names;
  for (const TableLayer& layer : layers_) names.push_back(layer.name);
  return names;
}

std::vector<RepeatedProblem> TableModel::pass_problems(std::size_t samples) const {
  auto all = problems(micro_batch_samples(samples, options_.micro_batches), true);
  for (RepeatedProblem& p : all) p.times *= options_.micro_batches;
  return all;
}

std::size_t TableModel::workspace_bytes(std::size_t batch) const {
  const std::size_t micro_batches = options_.micro_batches, samples = (batch + micro_batches - 1) / micro_batches;
  const std::size_t width = kernels::storage_bytes(options_.precision);
  std::vector<kernels::RnnShape> recurrent;
  std::size_t kept = 0, largest = 0, weights = 0, before = 0;
  for (const TableLayer& l : layers_) {
    if (l.kind == TableLayer::Kind::tensor) continue;
    const std::size_t in = samples * l.input_elements(), out = samples * l.output_elements();
    kept += (in == before ? 0 : in) + out;
    // Gates and states of all steps; scores of all heads, and what they are made from.
    if (l.kind == TableLayer::Kind::recurrent) {
      kept += 8 * out;
      const auto& s = std::get<kernels::RnnShape>(l.shape);
      if (std::ranges::find(recurrent, s) == recurrent.end()) recurrent.push_back(s);
    }
    if (l.kind == TableLayer::Kind::attention) {
      const auto& s = std::get<kernels::GemmShape>(l.shape);
      kept += 2 * in + samples * l.heads * s.m * s.m;
    }
    largest = std::max({largest, in, out});
    for (const std::size_t row : l.rows) weights = std::max(weights, table_.rows[row].parameters);
    before = l.kind == TableLayer::Kind::attention ? 0 : out;
  }
  // The library keeps weights of each recurrent operation in its own form, forward and backward.
  std::size_t scratch = 0;
  for (const kernels::RnnShape& s : recurrent) scratch += std::size_t{16} * s.hidden * (s.input_width() + s.hidden);
  // In bf16 it transposes both operands of a convolution's weight gradient.
  const std::size_t transposed = options_.precision == kernels::Precision::bf16 ? 2 * largest : 0;
  // Two gradients of activations under way, those that enter with both signs, a call's weights in the library's layout,
  // and random gradients of the tensors that no operation computes.
  const std::size_t sum = micro_batches > 1 ? element_count_ : 0;
  return (kept + 4 * largest + transposed) * width + (4 * weights + scratch + sum) * sizeof(float);
}

std::string TableModel::note() const {
  const auto implied = std::ranges::count_if(layers_, &TableLayer::is_implied);
  if (implied == 0) return {};
  return fmt::format("{} of {} layers run as the product that their shape implies: the table has no geometry of them",
                     implied, std::ranges::count_if(layers_, &TableLayer::computes));
}

void TableModel::initialise(Queue& queue, Buffers b, std::uint64_t seed) const {
  kernels::require_elements("table: parameters", b.parameters.count(), element_count_);
  kernels::require_elements("table: gradients", b.gradients.count(), element_count_);
  queue.at_once([&] {
    std::ranges::fill(b.parameters.values<float>(), 0.0F);
    std::ranges::fill(b.gradients.values<float>(), 0.0F);
    for (const TableLayer& l : layers_) {
      if (l.is_tied && l.computes()) continue;
      const double inputs = inputs_of(l), size = inputs > 0 ? 1 / std::sqrt(inputs) : 1;
      for (const std::size_t row : l.rows) {
        const TensorPlace t = places_[row];
        fill_random(b.parameters.part(t.first, t.count), kernels::number_format(core::Element::f32), seed + row, size);
      }
    }
  });
}

void TableModel::check(Buffers b, const Batch& batch, bool backward) const {
  kernels::require_elements("table: parameters", b.parameters.count(), element_count_);
  if (backward) kernels::require_elements("table: gradients", b.gradients.count(), element_count_);
  if (batch.samples() == 0) throw std::invalid_argument("table: the batch is empty");
}

TablePasses& TableModel::passes_for(Queue& queue, std::size_t samples) {
  for (const auto& p : passes_)
    if (p->fits(samples, queue)) return *p;
  return *passes_.emplace_back(std::make_unique<TablePasses>(
      layers_, places_, TableSetting{samples, options_.precision}, queue, options_.worker + 1));
}

void TableModel::run_forward(Queue& queue, Buffers b, const Batch& batch, const OutcomePlace& outcome) {
  check(b, batch, false);
  passes_for(queue, batch.samples()).forward(queue, b.parameters);
  queue.submit("forward.count", {}, [outcome, n = batch.samples()] { outcome->samples += n; });
}

void TableModel::run_pass(Queue& queue, Buffers b, const Batch& batch, const Ready& ready,
                          const OutcomePlace& outcome) {
  check(b, batch, true);
  const std::size_t k = options_.micro_batches, samples = micro_batch_samples(batch.samples(), k);
  for (std::size_t i = 0; i < k; ++i) {
    const Buffers here{b.parameters, sum_.target(queue, i, b.gradients)};
    const auto take = [&](std::size_t t) {
      if (i + 1 < k) return;
      sum_.take(queue, i, b.gradients, tensors_[t].offset, tensors_[t].count);
      ready(t);
    };
    pass_micro_batch(queue, here, part_of(batch, options_.features, i * samples, samples), take, outcome);
    if (i + 1 < k) sum_.take(queue, i, b.gradients, 0, element_count_);
  }
}

void TableModel::pass_micro_batch(Queue& queue, Buffers b, const Batch& batch, const Ready& ready,
                                  const OutcomePlace& outcome) {
  run_forward(queue, b, batch, outcome);
  // The walk differs from worker to worker: no rank's gradient is another's.
  const std::uint64_t turn = core::Random(options_.worker, 1).bits(passes_done_++);
  passes_for(queue, batch.samples()).backward(queue, b, turn, [&](std::size_t row) { ready(tensor_of_row_[row]); });
}

}  // namespace gradmeter::model
