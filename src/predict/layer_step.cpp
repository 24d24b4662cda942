// SPDX-License-Identifier: Apache-2.0
#include "predict/layer_step.hpp"

#include <algorithm>
#include <cmath>

#include "model/table/table_layers.hpp"
#include "predict/measurements.hpp"
#include "predict/step.hpp"

namespace gradmeter::predict {
namespace {

/// The precision of the kernels that a precision's name stands for ("amp", "fp8"). The device's peak is looked up by
/// the name itself.
kernels::Precision kernel_precision_of(std::string_view name) {
  const auto has = [&](std::string_view part) { return name.find(part) != std::string_view::npos; };
  if (has("fp8")) return kernels::Precision::fp8_e4m3;
  if (has("bf16")) return kernels::Precision::bf16;
  if (has("fp16") || has("amp")) return kernels::Precision::fp16;
  return kernels::Precision::fp32;
}

}  // namespace

std::optional<model::LayerTable> find_layer_table(const std::string& name) {
  if (name.ends_with(".csv")) return model::read_layer_table(name);
  const std::string wanted = plain_name(name);
  std::string_view best;
  for (const std::string_view table : model::shipped_layer_tables())
    if (wanted.starts_with(plain_name(table)) && table.size() > best.size()) best = table;
  if (best.empty()) return std::nullopt;
  return model::shipped_layer_table(best);
}

LayerStep layer_step(const model::LayerTable& table, std::size_t samples, std::string_view precision,
                     const core::Machine& m) {
  const double memory_rate = 0.8 * m.device->memory_bytes_per_s;
  TrainingStep row;  // terms depend on the precision of a measured row
  row.precision = precision;
  const Terms terms = terms_of(m, row);
  const double rate = terms[Term::product_share] * m.device->peak(precision);
  const kernels::Precision kernel_precision = kernel_precision_of(precision);
  LayerStep step;
  const auto add = [&](const kernels::Problem& p) {
    const double flops = kernels::run_flops(p), arithmetic_s = flops / rate,
                 memory_s = kernels::native_bytes(p) / memory_rate;
    step.compute_s += std::max({arithmetic_s, memory_s, m.device->launch_s});
    if (memory_s > arithmetic_s) step.memory_s += memory_s;
    step.flops += flops;
  };
  bool is_first = true;
  for (const model::TableLayer& layer : model::layers_of(table)) {
    if (!layer.computes()) continue;
    const auto problems = model::problems_of(layer, samples, !is_first, kernel_precision);
    is_first = false;
    for (const auto& p : problems.forward) add(p);
    for (const auto& p : problems.backward) add(p);
  }
  // Norms and activation functions read and write each result: four passes forward, six backward.
  constexpr double passes = 10, fp32_bytes = 4;
  const double element_bytes = static_cast<double>(kernels::storage_bytes(kernel_precision));
  const double result_bytes = table.activation_bytes() / fp32_bytes * element_bytes * static_cast<double>(samples);
  const double loops_s = passes * result_bytes / memory_rate;
  step.compute_s += loops_s;
  step.memory_s += loops_s;
  // A result is kept once as the product wrote it, and once as the next layer reads it.
  step.activation_bytes = 2 * result_bytes;
  constexpr double update_bytes = 20;  // weights, gradients and momentum in fp32: three reads, two writes
  step.update_s = update_bytes * static_cast<double>(table.parameters()) / memory_rate;
  return step;
}

}  // namespace gradmeter::predict
