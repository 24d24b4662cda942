// SPDX-License-Identifier: Apache-2.0
#include "predict/scaled_step.hpp"

#include <algorithm>
#include <cmath>
#include <string_view>

namespace gradmeter::predict {
namespace {

bool has(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

/// True if the step says how its gradients are exchanged or encoded, which rows of tables do not.
bool has_own_exchange(const TrainingStep& s) {
  return !(s.exchange == ExchangeChoice{}) || s.gradient_bits > 0 || s.coding_passes > 0;
}

/// The row from which a step is scaled: of the rows with the same computation on each GPU and no more GPUs, the one
/// that agrees best in data and strategy; of several such rows, the one with the fewest GPUs. A row on as many GPUs is
/// not taken for a step with an exchange of its own, which the row's time does not contain. Null: there is none.
const TrainingStep* base_of(const TrainingStep& s, std::span<const TrainingStep> known) {
  constexpr std::string_view median = "p50";
  const TrainingStep* best = nullptr;
  int best_agreement = -1;
  for (const TrainingStep& row : known) {
    if (row.system != s.system || !is_same_device(row.gpu, s.gpu) || plain_name(row.model) != plain_name(s.model) ||
        row.precision != s.precision ||
        (row.quantile != s.quantile && !(s.quantile.empty() && row.quantile == median)) ||
        std::abs(batch_per_gpu(row) - batch_per_gpu(s)) > 1e-9 || row.gpus > s.gpus ||
        (row.gpus == s.gpus && s.gpus > 1 && has_own_exchange(s)))
      continue;
    const int agreement = 2 * static_cast<int>(row.data == s.data) + static_cast<int>(row.strategy == s.strategy);
    if (!best || agreement > best_agreement || (agreement == best_agreement && row.gpus < best->gpus))
      best = &row, best_agreement = agreement;
  }
  return best;
}

/// The time of an exchange of so many bytes [s].
double all_reduce_s(const TrainingStep& s, double bytes, const core::Machine& m) {
  constexpr double pcie = 10e9, host_memory = 40e9, ethernet = 1.25e9, ring_share = 0.5, latency_s = 2e-5;
  const auto gpus = static_cast<double>(s.gpus);
  const double per_node = m.ranks_per_node;
  const double nodes = std::max(1.0, std::ceil(gpus / per_node));
  if (has(s.strategy, "distributed")) return bytes * 2 * (nodes - 1) / nodes / ethernet;
  if (has(s.strategy, "parameter_server")) return 2 * bytes * std::min(gpus, 2.0) / pcie + gpus * bytes / host_memory;
  const core::Link& link = m.within_node;
  // A ring within a node is assumed to reach half of the links' rate, where no rate of such a group is known.
  double rate = ring_share * link.bandwidth.back().bytes_per_s;
  if (!link.groups.empty()) rate = link.group_bytes_per_s(static_cast<std::uint32_t>(std::min(gpus, per_node)));
  const double between = 0.8 * m.node_port.bytes_per_s;
  if (!s.exchange.algorithm.empty() && s.gpus > 1)
    return all_reduce_seconds(s.exchange.algorithm, bytes,
                              {.ranks = static_cast<std::uint32_t>(s.gpus),
                               .ranks_per_node = static_cast<std::uint32_t>(std::min(gpus, per_node)),
                               .latency_s = latency_s,
                               .within_bytes_per_s = rate,
                               .between_bytes_per_s = between,
                               .reduce_bytes_per_s = 0.8 * m.device->memory_bytes_per_s / 3});
  if (nodes > 1) rate = std::min(rate, between);
  // A ring within the node, and a tree between nodes.
  const double hops = std::min(gpus, per_node) - 1 + std::log2(nodes);
  return 2 * hops * latency_s + 2 * (gpus - 1) / gpus * bytes / rate;
}

}  // namespace

std::string exchange_refusal(const TrainingStep& s, const core::Machine& m) {
  const auto ranks = static_cast<std::uint32_t>(s.gpus);
  return algorithm_refusal(s.exchange.algorithm, ranks, std::min(ranks, m.ranks_per_node));
}

double scaled_seconds(const TrainingStep& s, double base_s, double base_gpus, const core::Machine& m) {
  constexpr double loss_per_doubling = 0.005, overlap = 0.8, least_exposed = 0.1, backward = 2.0 / 3;
  const double bits = s.gradient_bits > 0 ? s.gradient_bits : 32;
  const DataExchange exchange = data_exchange(s.exchange, bits / 8 * s.parameters, overlap * backward * base_s,
                                              [&](double bytes) { return all_reduce_s(s, bytes, m); });
  const double coding = s.coding_passes * sizeof(float) * s.parameters / (0.8 * m.device->memory_bytes_per_s);
  const double doublings = std::log2(static_cast<double>(s.gpus) / base_gpus);
  return base_s * (1 + loss_per_doubling * doublings) + exchange.exposed_s + least_exposed * exchange.total_s + coding;
}

ScaledStep scaled_step(const TrainingStep& s, std::span<const TrainingStep> known, const core::Machine& m) {
  if (s.global_batch == 0) return {.seconds = {}, .reason = "the global batch is not stated"};
  const TrainingStep* base = base_of(s, known);
  if (!base) return {.seconds = {}, .reason = "no calibration row of this network, precision and batch on fewer GPUs"};
  if (base->gpus == s.gpus)
    return {.seconds = base->step_s, .spread = 0.05, .gpus = static_cast<double>(base->gpus), .base_s = base->step_s};
  TrainingStep with_parameters = s;
  if (!(s.parameters > 0)) with_parameters.parameters = base->parameters;
  if (!(with_parameters.parameters > 0)) return {.seconds = {}, .reason = "the number of parameters is not stated"};
  return {.seconds = scaled_seconds(with_parameters, base->step_s, static_cast<double>(base->gpus), m),
          .spread = 0.1,
          .gpus = static_cast<double>(base->gpus),
          .base_s = base->step_s};
}

}  // namespace gradmeter::predict
