// SPDX-License-Identifier: Apache-2.0
#include "predict/scaled_step.hpp"

#include <algorithm>
#include <cmath>
#include <string_view>

namespace gradmeter::predict {
namespace {

bool has(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

double batch_a_gpu(const MeasuredStep& s) { return static_cast<double>(s.global_batch) / static_cast<double>(s.gpus); }

/// The row with the fewest GPUs that is the same computation on each; of several the one that agrees in strategy and
/// data too. Null: there is none.
const MeasuredStep* base_of(const MeasuredStep& s, std::span<const MeasuredStep> known) {
  const MeasuredStep* best = nullptr;
  int best_agrees = -1;
  for (const MeasuredStep& r : known) {
    if (r.system != s.system || r.model != s.model || r.precision != s.precision || r.quantile != s.quantile ||
        std::abs(batch_a_gpu(r) - batch_a_gpu(s)) > 1e-9 || r.gpus > s.gpus)
      continue;
    const int agrees = 2 * static_cast<int>(r.data == s.data) + static_cast<int>(r.strategy == s.strategy);
    if (!best || agrees > best_agrees || (agrees == best_agrees && r.gpus < best->gpus))
      best = &r, best_agrees = agrees;
  }
  return best;
}

/// The exchange of all gradients in fp32 [s].
double exchange_s(const MeasuredStep& s, const Sheet& sheet) {
  constexpr double pcie = 10e9, host_memory = 40e9, ethernet = 1.25e9, ring_share = 0.5, latency_s = 2e-5;
  const auto n = static_cast<double>(s.gpus);
  const double bytes = sizeof(float) * s.parameters, per_node = static_cast<double>(sheet.gpus_per_node);
  const double nodes = std::max(1.0, std::ceil(n / per_node));
  if (has(s.strategy, "distributed")) return bytes * 2 * (nodes - 1) / nodes / ethernet;
  if (has(s.strategy, "parameter_server")) return 2 * bytes * std::min(n, 2.0) / pcie + n * bytes / host_memory;
  const double rate = nodes > 1 ? std::min(ring_share * sheet.within_bytes_per_s, 0.8 * sheet.between_bytes_per_s)
                                : ring_share * sheet.within_bytes_per_s;
  return 2 * (n - 1) * latency_s + 2 * (n - 1) / n * bytes / rate;
}

}  // namespace

ScaledStep scaled_step(const MeasuredStep& s, std::span<const MeasuredStep> known, const Sheet& sheet) {
  if (s.global_batch == 0) return {.seconds = {}, .reason = "the global batch is not stated"};
  const MeasuredStep* base = base_of(s, known);
  if (!base) return {.seconds = {}, .reason = "no calibration row of this network, precision and batch on fewer GPUs"};
  if (base->gpus == s.gpus) return {.seconds = base->step_s, .spread = 0.05, .gpus = static_cast<double>(base->gpus)};
  if (!(s.parameters > 0)) return {.seconds = {}, .reason = "the number of parameters is not stated"};
  constexpr double a_doubling = 0.005, overlap = 0.8, shown = 0.1, backward = 2.0 / 3;
  const double one = base->step_s, exchange = exchange_s(s, sheet);
  const double doublings = std::log2(static_cast<double>(s.gpus) / static_cast<double>(base->gpus));
  return {.seconds = one * (1 + a_doubling * doublings) + std::max(0.0, exchange - overlap * backward * one) +
                     shown * exchange,
          .spread = 0.1,
          .gpus = static_cast<double>(base->gpus)};
}

}  // namespace gradmeter::predict
