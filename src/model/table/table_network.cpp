// SPDX-License-Identifier: Apache-2.0
#include "model/table/table_network.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <utility>

#include "core/error.hpp"
#include "core/format.hpp"
#include "kernels/op.hpp"
#include "model/table/table_run.hpp"

namespace gradmeter::model {
namespace {

class PreparedTableLayer final : public PreparedLayer {
 public:
  PreparedTableLayer(std::shared_ptr<TableRun> run, std::size_t layer) : run_(std::move(run)), layer_(layer) {}
  void forward(const LayerForward& f) override { run_->forward(layer_, f); }
  void backward(const LayerBackward& b) override { run_->backward(layer_, b); }

 private:
  std::shared_ptr<TableRun> run_;
  std::size_t layer_;
};

/// The facts that all layers of a table share on a rank.
struct TableFacts {
  kernels::Precision precision;
  std::uint64_t worker;
  TableWorkspaces workspaces = {};
};

/// A layer's place among its neighbours.
struct LayerPlace {
  /// Floats of a sample that a pipeline stage receives if the layer is its first, and sends if the layer is its last.
  std::size_t input = 0, output = 0;
  bool is_first = false, is_last = false;  ///< in the table
  std::size_t kept = 0;                    ///< elements for a sample that the layer keeps from forward to backward
};

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

class LayerOfTable final : public Layer {
 public:
  LayerOfTable(const LayerTable& table, RunLayer l, const LayerPlace& place, std::shared_ptr<TableFacts> facts)
      : run_layer_(std::move(l)), place_(place), facts_(std::move(facts)) {
    const TableLayer& layer = run_layer_.layer;
    const double inputs = inputs_of(layer), deviation = inputs > 0 ? 1 / std::sqrt(inputs) : 1;
    for (const std::size_t row : layer.rows) {
      const TableRow& r = table.rows[row];
      run_layer_.counts.push_back(r.parameters);
      tensors_.push_back({.name = r.layer,
                          .shape = r.shape,
                          .bound = std::sqrt(3.0) * deviation,  // uniform numbers within ±√3·d deviate by d
                          .is_tied = layer.is_tied && layer.computes(),
                          .owner = layer.owner,
                          .has_unique_name = true});
    }
    std::ranges::reverse(tensors_);
  }

  std::string name() const override { return run_layer_.layer.name; }
  SampleShape input() const override { return FeatureShape{place_.input}; }
  SampleShape output() const override { return FeatureShape{place_.output}; }
  std::span<const LayerTensor> tensors() const override { return tensors_; }
  LayerProblems problems(std::size_t samples, bool input_gradient) const override {
    return problems_of(run_layer_.layer, samples, input_gradient && run_layer_.needs_input_gradient, facts_->precision);
  }
  std::size_t activation_elements() const override { return place_.kept; }
  bool keeps_activations() const override { return true; }
  bool draws_by_pass() const override { return true; }
  std::size_t shared_bytes(std::span<const std::unique_ptr<Layer>> layers, std::size_t samples) const override;

  std::unique_ptr<PreparedLayer> prepare(std::size_t samples, bool input_gradient,
                                         runtime::Device& device) const override {
    return std::move(prepare_run(std::array{this}, samples, input_gradient, device).front());
  }
  std::vector<std::unique_ptr<PreparedLayer>> prepare_run(std::span<const std::unique_ptr<Layer>> layers,
                                                          std::size_t samples, bool input_gradient,
                                                          runtime::Device& device) const override {
    const std::vector<const LayerOfTable*> table_layers = leading_table_layers(layers);
    return prepare_run(table_layers, samples, input_gradient, device);
  }

 private:
  /// The rows with which a list of layers begins.
  static std::vector<const LayerOfTable*> leading_table_layers(std::span<const std::unique_ptr<Layer>> layers) {
    std::vector<const LayerOfTable*> table_layers;
    for (const auto& l : layers) {
      const auto* const table_layer = dynamic_cast<const LayerOfTable*>(l.get());
      if (!table_layer) break;
      table_layers.push_back(table_layer);
    }
    return table_layers;
  }
  static std::vector<std::unique_ptr<PreparedLayer>> prepare_run(std::span<const LayerOfTable* const> table_layers,
                                                                 std::size_t samples, bool input_gradient,
                                                                 runtime::Device& device) {
    const auto& [first, last] = std::pair(table_layers.front(), table_layers.back());
    TableRunShape run{.samples = samples, .precision = first->facts_->precision};
    for (const LayerOfTable* table_layer : table_layers) run.layers.push_back(table_layer->run_layer_);
    run.layers.front().needs_input_gradient &= input_gradient;
    if (!first->place_.is_first) run.input_floats = samples * first->place_.input;
    if (!last->place_.is_last) run.output_floats = samples * last->place_.output;
    const auto prepared =
        std::make_shared<TableRun>(std::move(run), device, first->facts_->worker, first->facts_->workspaces);
    std::vector<std::unique_ptr<PreparedLayer>> prepared_layers;
    for (std::size_t l = 0; l < table_layers.size(); ++l)
      prepared_layers.push_back(std::make_unique<PreparedTableLayer>(prepared, l));
    return prepared_layers;
  }

  RunLayer run_layer_;
  LayerPlace place_;
  std::shared_ptr<TableFacts> facts_;
  std::vector<LayerTensor> tensors_;
};

/// Bytes that a layer's weights, or their gradients, take in the library's layouts during a call. Products in fp32 take
/// them from the flat buffers; a recurrent operation has weights and gradients at once.
std::size_t packed_weight_bytes(const RunLayer& l, kernels::Precision precision) {
  const bool is_product = l.layer.kind == TableLayer::Kind::product;
  if (!l.layer.computes() || (is_product && precision == kernels::Precision::fp32)) return 0;
  const std::size_t rows = std::min(l.counts.size(), rows_with_computed_gradients(l.layer));
  const std::size_t count =
      std::accumulate(l.counts.begin(), l.counts.begin() + static_cast<std::ptrdiff_t>(rows), 0UL);
  return count * kernels::storage_bytes(precision) * (l.layer.kind == TableLayer::Kind::recurrent ? 2 : 1);
}

/// An estimate of the bytes of gradients of activations, random gradients, operands in the library's layouts, and the
/// numbers that are sent to other stages.
std::size_t LayerOfTable::shared_bytes(std::span<const std::unique_ptr<Layer>> layers, std::size_t samples) const {
  const std::vector<const LayerOfTable*> table_layers = leading_table_layers(layers);
  const kernels::Precision precision = facts_->precision;
  std::vector<kernels::RnnShape> recurrent;
  std::size_t largest = 0, packed_bytes = 0, copied = 0;
  for (const LayerOfTable* table_layer : table_layers) {
    const auto& [l, counts, _] = table_layer->run_layer_;
    largest = std::max({largest, l.input_elements(), l.output_elements()});
    packed_bytes = std::max(packed_bytes, packed_weight_bytes(table_layer->run_layer_, precision));
    for (std::size_t i = rows_with_computed_gradients(l); i < counts.size(); ++i) copied = std::max(copied, counts[i]);
    if (l.kind != TableLayer::Kind::recurrent) continue;
    const auto& s = std::get<kernels::RnnShape>(l.shape);
    if (std::ranges::find(recurrent, s) == recurrent.end()) recurrent.push_back(s);
  }
  // The library keeps weights of each recurrent operation in its own form, forward and backward.
  std::size_t scratch = 0;
  for (const kernels::RnnShape& s : recurrent) scratch += std::size_t{16} * s.hidden * (s.input_width() + s.hidden);
  // In bf16 the library transposes both operands of a convolution's weight gradient.
  const std::size_t transposed = precision == kernels::Precision::bf16 ? 2 * largest : 0;
  const std::size_t crossing = (table_layers.front()->place_.is_first ? 0 : table_layers.front()->place_.input) +
                               (table_layers.back()->place_.is_last ? 0 : table_layers.back()->place_.output);
  // Two gradients of activations under way, and random gradients with both signs, also for tensors that only copy them.
  return samples * ((4 * largest + transposed) * kernels::storage_bytes(precision) + crossing * sizeof(float)) +
         packed_bytes + (2 * copied + scratch) * sizeof(float);
}

/// Checks the layer's operations with one sample, so that a network is refused before any of it is made.
void require_supported(const TableLayer& l, const TableNetworkOptions& o) {
  const LayerProblems p = problems_of(l, 1, true, o.precision);
  for (const auto* const pass : {&p.forward, &p.backward})
    for (const kernels::Problem& problem : *pass)
      if (const std::string why = kernels::op_refusal(problem, o.device); !why.empty())
        throw core::UsageError(fmt::format("model '{}', layer {}: {}", o.name, l.name, why));
}

void require_runnable(const TableNetworkOptions& o) {
  // fp32 parameters become operands of these precisions.
  if (o.precision != kernels::Precision::fp32 && o.precision != kernels::Precision::bf16)
    throw core::UsageError(
        fmt::format("model '{}': layer tables run in fp32 and bf16, not in {}", o.name, kernels::name(o.precision)));
  if (o.part.tensor_ranks > 1)
    throw core::UsageError(fmt::format(
        "model '{}' is a layer table, which does not say which layers read the same numbers, so that tensor ranks "
        "cannot share them; take pipeline, or a model of list models",
        o.name));
}

/// The places of layers between the data set's features and classes.
std::vector<LayerPlace> places_of(std::span<const TableLayer> layers, const TableNetworkOptions& o) {
  std::vector<LayerPlace> places(layers.size());
  places.front().is_first = places.back().is_last = true;
  // The floats that a layer is given: those that it reads, or, if it only has tensors, those that the next one reads.
  // An embedding counts as reading as many as it gives, since its numbers are added.
  std::size_t given = 0;
  for (const TableLayer& l : layers) given = l.computes() ? l.output_elements() : given;
  for (std::size_t l = layers.size(); l-- > 0;) {
    places[l].output = given;
    if (layers[l].kind == TableLayer::Kind::embedding) {
      given = layers[l].output_elements();
    } else if (layers[l].computes()) {
      given = layers[l].input_elements();
    }
    places[l].input = given;
  }
  places.front().input = o.features;
  places.back().output = o.classes;
  return places;
}

/// Estimates the elements that each layer keeps from forward to backward.
void estimate_kept(std::span<const TableLayer> layers, kernels::Precision precision, std::span<LayerPlace> places) {
  std::size_t before = 0;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const TableLayer& l = layers[i];
    if (l.kind == TableLayer::Kind::tensor) continue;
    const std::size_t in = l.input_elements(), out = l.output_elements();
    std::size_t kept = (in == before ? 0 : in) + out;
    // Gates and states of all steps; scores of all heads, and what they are made from.
    if (l.kind == TableLayer::Kind::recurrent) kept += 8 * out;
    if (l.kind == TableLayer::Kind::attention) {
      const auto& s = std::get<kernels::GemmShape>(l.shape);
      kept += 2 * in + l.heads * s.m * s.m;
    }
    places[i].kept = kept * kernels::storage_bytes(precision) / sizeof(float);
    before = l.kind == TableLayer::Kind::attention ? 0 : out;
  }
}

std::string note_of(std::span<const TableLayer> layers) {
  const auto implied = std::ranges::count_if(layers, &TableLayer::is_implied);
  if (implied == 0) return {};
  return fmt::format("{} of {} layers run as the product that their shape implies: the table has no geometry of them",
                     implied, std::ranges::count_if(layers, &TableLayer::computes));
}

}  // namespace

std::unique_ptr<Network> make_table_network(const LayerTable& table, const TableNetworkOptions& o) {
  require_runnable(o);
  const std::vector<TableLayer> layers = layers_of(table);
  for (const TableLayer& l : layers) require_supported(l, o);
  std::vector<LayerPlace> places = places_of(layers, o);
  const auto facts = std::make_shared<TableFacts>(TableFacts{.precision = o.precision, .worker = o.worker});
  estimate_kept(layers, o.precision, places);
  std::vector<std::unique_ptr<Layer>> network_layers;
  bool any_before = false;
  for (std::size_t l = 0; l < layers.size(); ++l) {
    network_layers.push_back(std::make_unique<LayerOfTable>(
        table, RunLayer{.layer = layers[l], .needs_input_gradient = any_before}, places[l], facts));
    any_before |= layers[l].kind != TableLayer::Kind::tensor;
  }
  return std::make_unique<Network>(o.name, std::move(network_layers), o.part,
                                   NetworkOptions{.learns = false, .note = note_of(layers)});
}

}  // namespace gradmeter::model
