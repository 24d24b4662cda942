#include "model/table/table_model.hpp"

#include <algorithm>
#include <cmath>

#include "core/error.hpp"
#include "core/format.hpp"
#include "core/random.hpp"
#include "kernels/aligned.hpp"
#include "kernels/problems/shape.hpp"
#include "model/table/table_passes.hpp"

namespace gradmeter::model {
namespace {

constexpr std::size_t none = SIZE_MAX;

/// Inputs of one output, from which the size of initial weights follows: 0 for what is no weight of a product.
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

/// At one sample, so that a run is refused before anything of it is made.
void require_supported(const TableLayer& l, const TableModelOptions& o) {
  const LayerProblems p = problems_of(l, 1, true, o.precision);
  for (const auto* const pass : {&p.forward, &p.backward})
    for (const kernels::Problem& problem : *pass)
      if (const std::string why = kernels::op_refusal(problem); !why.empty())
        throw core::UsageError(fmt::format("model '{}', layer {}: {}", o.name, l.name, why));
}

/// Parameters in fp32 become operands of these.
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

double TableModel::step_flops(std::size_t samples) const {
  double flops = 0;
  for (const RepeatedProblem& p : problems(samples, true))
    flops += static_cast<double>(p.times) * kernels::run_flops(p.problem);
  return flops;
}

std::size_t TableModel::workspace_bytes(std::size_t samples) const {
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
  // What the library keeps of the weights of each recurrent operation, forward and backward.
  std::size_t scratch = 0;
  for (const kernels::RnnShape& s : recurrent) scratch += std::size_t{16} * s.hidden * (s.input_width() + s.hidden);
  // In bf16 it transposes both operands of a convolution's weight gradient.
  const std::size_t transposed = options_.precision == kernels::Precision::bf16 ? 2 * largest : 0;
  // Two gradients of activations under way, those that enter with both signs, a call's weights in the library's layout,
  // random gradients of the tensors that nobody computes.
  return (kept + 4 * largest + transposed) * width + (4 * weights + scratch) * sizeof(float);
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
  run_forward(queue, b, batch, outcome);
  // A walk that differs from worker to worker: no rank's gradient is another's.
  const std::uint64_t turn = core::Random(options_.worker, 1).bits(passes_done_++);
  passes_for(queue, batch.samples()).backward(queue, b, turn, [&](std::size_t row) { ready(tensor_of_row_[row]); });
}

}  // namespace gradmeter::model
