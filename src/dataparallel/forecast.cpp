// SPDX-License-Identifier: Apache-2.0
#include "dataparallel/forecast.hpp"

#include <algorithm>

#include "allreduce/schedule/slices.hpp"

namespace gradmeter::dataparallel {

namespace {

/// The algorithm that fabrics take too: the given one, or the ring for collectives (other than all-reduce) for which it
/// has no schedule.
allreduce::AlgorithmPtr algorithm_for(const ForecastInput& input, allreduce::RankShape shape,
                                      allreduce::CollectiveKind collective_kind) {
  const bool fits = input.algorithm &&
                    (collective_kind == allreduce::CollectiveKind::all_reduce ||
                     (input.algorithm->has_schedule() && input.algorithm->refusal(shape, collective_kind).empty()));
  return fits ? input.algorithm : allreduce::find_algorithm("ring");
}

}  // namespace

Forecast& Forecast::operator+=(const Forecast& o) {
  bytes += o.bytes;
  messages += o.messages;
  seconds += o.seconds;
  least += o.least;
  least_of_one += o.least_of_one;
  least_between_nodes += o.least_between_nodes;
  const bool bound = bounds_from_above() && o.bounds_from_above();
  exact = exact && o.exact;
  upper_bound = bound && !exact;
  return *this;
}

Forecast Forecast::times(std::uint64_t n) const {
  return {.bytes = bytes * n,
          .messages = messages * n,
          .seconds = seconds * static_cast<double>(n),
          .exact = exact,
          .upper_bound = upper_bound,
          .least = least * n,
          .least_of_one = least_of_one * n,
          .least_between_nodes = least_between_nodes * n};
}

allreduce::RankShape shape_of(const ForecastInput& input) {
  return {input.ranks, input.ranks_per_node.value_or(input.ranks)};
}

namespace {

std::uint32_t nodes_of(allreduce::RankShape shape) {
  return shape.ranks_per_node > 0 ? std::max(1u, shape.ranks / shape.ranks_per_node) : 1;
}

}  // namespace

double wire_seconds(const ForecastInput& input, double bytes) {
  const core::Link& link = nodes_of(shape_of(input)) > 1 ? input.machine.between_nodes : input.machine.within_node;
  return bytes / link.bytes_per_s(static_cast<std::uint64_t>(bytes));
}

std::uint64_t least_sent(allreduce::CollectiveKind collective_kind, std::uint64_t parties, std::uint64_t bytes) {
  return (collective_kind == allreduce::CollectiveKind::all_reduce ? 2 : 1) * (parties - 1) * bytes;
}

namespace {

/// The lower bounds of a collective on `bytes` bytes, whatever its algorithm. If the shape says that ranks lie
/// irregularly on nodes (ranks_per_node is 0), they are taken to be on one node, so that the bound holds.
Forecast least_of(const ForecastInput& input, allreduce::CollectiveKind collective_kind, std::uint64_t bytes) {
  const allreduce::RankShape shape = shape_of(input);
  const std::uint64_t least = least_sent(collective_kind, shape.ranks, bytes);
  return {.least = least,
          .least_of_one = least / shape.ranks,
          .least_between_nodes = least_sent(collective_kind, nodes_of(shape), bytes)};
}

/// Adds the cost of one call on a buffer of `bytes` bytes that is cut into `slices` slices.
void add_calls(Forecast& forecast, const allreduce::StatedCost& cost, std::uint64_t slices, std::uint64_t bytes,
               const ForecastInput& input) {
  forecast.bytes += cost.sent * bytes;
  forecast.messages += cost.messages * slices;
  forecast.seconds += wire_seconds(input, cost.sent_per_rank_max * static_cast<double>(bytes));
}

}  // namespace

Forecast forecast_collective(const ForecastInput& input, allreduce::CollectiveKind collective_kind,
                             std::size_t elements) {
  if (input.ranks < 2) return {};
  const allreduce::RankShape shape = shape_of(input);
  const auto algorithm = algorithm_for(input, shape, collective_kind);
  Forecast out = least_of(input, collective_kind, elements * sizeof(float));
  out.exact = algorithm->has_schedule();
  if (out.exact) add_calls(out, algorithm->cost(shape, collective_kind), 1, elements * sizeof(float), input);
  return out;
}

namespace {

allreduce::ExchangeSpec exchange_of(const ForecastInput& input) {
  return {.placement = allreduce::Placement::in_place,
          .max_bytes = input.max_call_bytes ? input.max_call_bytes : input.elements * sizeof(float),
          .message_bytes = input.message_bytes ? input.message_bytes : runtime::longest_usual_message,
          .algorithm = input.algorithm ? input.algorithm : allreduce::find_algorithm("ring"),
          .codec = input.codec,
          .shape = shape_of(input)};
}

/// Forecasts one inner call of an exchange with a codec, cut into slices as the executor does.
Forecast forecast_part(const ForecastInput& input, const allreduce::InnerCall& part) {
  if (part.count == 0) return {};
  const std::size_t bytes = part.codec ? part.codec->codec->wire_bytes(part.count) : part.count * part.element_bytes;
  Forecast out = least_of(input, part.collective_kind, part.upper_bound ? 0 : bytes);
  out.exact = part.algorithm->has_schedule() && !part.upper_bound;
  if (!part.algorithm->has_schedule()) return out;
  const allreduce::RankShape shape = shape_of(input);
  const allreduce::ScheduledAlgorithm algorithm{part.algorithm->name,
                                                part.algorithm->make(shape, part.collective_kind)};
  allreduce::ExchangeSpec spec = exchange_of(input);
  spec.codec = part.codec;
  const auto slices = allreduce::Executor::slices(algorithm, spec, part.count, part.element_bytes);
  out.upper_bound = part.upper_bound;
  add_calls(out, part.algorithm->cost(shape, part.collective_kind), slices.count(),
            allreduce::Executor::buffer_bytes(spec, slices, part.element_bytes), input);
  return out;
}

}  // namespace

Forecast forecast_all_reduce(const ForecastInput& input, std::size_t elements,
                             const allreduce::TensorLayout& tensor_layout) {
  if (!input.codec || input.ranks < 2)
    return forecast_collective(input, allreduce::CollectiveKind::all_reduce, elements);
  const allreduce::ExchangeSpec spec = exchange_of(input);
  if (!allreduce::codec_refusal(spec, allreduce::CollectiveKind::all_reduce, {}).empty()) return {.exact = false};
  Forecast out;
  for (const auto& part : allreduce::inner_calls_of(spec, elements, tensor_layout.tensors)) {
    out += forecast_part(input, part);
  }
  return out;
}

Forecast forecast_messages(const ForecastInput& input, std::uint32_t senders, std::uint64_t messages,
                           std::uint64_t bytes) {
  return {.bytes = senders * bytes,
          .messages = senders * messages,
          .seconds = wire_seconds(input, static_cast<double>(bytes)),
          .least = senders * bytes,
          .least_of_one = bytes};
}

}  // namespace gradmeter::dataparallel
