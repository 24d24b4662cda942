// SPDX-License-Identifier: Apache-2.0
#include "predict/data_exchange.hpp"

#include <algorithm>
#include <cmath>

#include "predict/collective.hpp"

namespace gradmeter::predict {

DataExchange data_exchange(const ExchangeChoice& c, double bytes, double window_s,
                           const std::function<double(double)>& all_reduce) {
  if (c.every == 0) return {};
  if (c.averages_weights) {
    const double s = all_reduce(bytes) / static_cast<double>(c.every);
    return {s, s};
  }
  if (!c.bucket_bytes) {
    const double s = all_reduce(bytes);
    return {s, std::max(0.0, s - window_s)};
  }
  const double buckets =
      *c.bucket_bytes == 0 ? 1 : std::max(1.0, std::ceil(bytes / static_cast<double>(*c.bucket_bytes)));
  const double one_s = all_reduce(bytes / buckets), all_s = buckets * one_s;
  // The first bucket waits until it is ready, and the others behind it; the last one is ready when the window ends.
  const double end_s = std::max(window_s / buckets + all_s, window_s + one_s);
  return {all_s, end_s - window_s};
}

std::string algorithm_refusal(const std::string& algorithm, std::uint32_t ranks, std::uint32_t ranks_per_node) {
  if (algorithm.empty() || ranks < 2) return {};
  return allreduce::find_algorithm(algorithm)->refusal({ranks, ranks_per_node});
}

double all_reduce_seconds(const std::string& algorithm, double bytes, const ExchangeLinks& l) {
  core::Machine m;
  m.ranks_per_node = l.ranks_per_node;
  m.within_node = {.latency_s = l.latency_s, .bandwidth = {{.bytes_per_s = l.within_bytes_per_s}}};
  m.between_nodes = {.latency_s = l.latency_s, .bandwidth = {{.bytes_per_s = l.between_bytes_per_s}}};
  m.node_port.bytes_per_s = l.between_bytes_per_s;
  m.reduce_bytes_per_s = l.reduce_bytes_per_s;
  // Messages between accelerators are long; slices of them hide latency and sums.
  constexpr std::size_t message_bytes = std::size_t{4} << 20;
  const auto elements = static_cast<std::size_t>(std::ceil(bytes / sizeof(float)));
  return formula_seconds({.algorithm = allreduce::find_algorithm(algorithm),
                          .shape = {l.ranks, l.ranks_per_node},
                          .bytes = std::max<std::size_t>(1, elements) * sizeof(float),
                          .message_bytes = message_bytes},
                         m);
}

}  // namespace gradmeter::predict
