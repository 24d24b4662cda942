// SPDX-License-Identifier: Apache-2.0
#include "predict/data_exchange.hpp"

#include <algorithm>
#include <cmath>

#include "predict/collective.hpp"

namespace gradmeter::predict {

DataExchange data_exchange(const ExchangeChoice& choice, double bytes, double window_s,
                           const std::function<double(double)>& all_reduce) {
  if (choice.every == 0) return {};
  if (choice.averages_weights) {
    const double exchange_s = all_reduce(bytes) / static_cast<double>(choice.every);
    return {exchange_s, exchange_s};
  }
  if (!choice.bucket_bytes) {
    const double exchange_s = all_reduce(bytes);
    return {exchange_s, std::max(0.0, exchange_s - window_s)};
  }
  const double buckets =
      *choice.bucket_bytes == 0 ? 1 : std::max(1.0, std::ceil(bytes / static_cast<double>(*choice.bucket_bytes)));
  const double one_s = all_reduce(bytes / buckets), all_s = buckets * one_s;
  // The first bucket waits until it is ready, and the others wait behind it; the last one is ready when the window
  // ends.
  const double end_s = std::max(window_s / buckets + all_s, window_s + one_s);
  return {all_s, end_s - window_s};
}

std::string algorithm_refusal(const std::string& algorithm, std::uint32_t ranks, std::uint32_t ranks_per_node) {
  if (algorithm.empty() || ranks < 2) return {};
  return allreduce::find_algorithm(algorithm)->refusal({ranks, ranks_per_node});
}

double all_reduce_seconds(const std::string& algorithm, double bytes, const ExchangeLinks& links) {
  core::Machine m;
  m.ranks_per_node = links.ranks_per_node;
  m.within_node = {.latency_s = links.latency_s, .bandwidth = {{.bytes_per_s = links.within_bytes_per_s}}};
  m.between_nodes = {.latency_s = links.latency_s, .bandwidth = {{.bytes_per_s = links.between_bytes_per_s}}};
  m.node_port.bytes_per_s = links.between_bytes_per_s;
  m.reduce_bytes_per_s = links.reduce_bytes_per_s;
  // Messages between accelerators are long; slices of them hide latency and sums.
  constexpr std::size_t message_bytes = std::size_t{4} << 20;
  const auto elements = static_cast<std::size_t>(std::ceil(bytes / sizeof(float)));
  return formula_seconds({.algorithm = allreduce::find_algorithm(algorithm),
                          .shape = {links.ranks, links.ranks_per_node},
                          .bytes = std::max<std::size_t>(1, elements) * sizeof(float),
                          .message_bytes = message_bytes},
                         m);
}

}  // namespace gradmeter::predict
