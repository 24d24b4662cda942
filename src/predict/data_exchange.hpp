// SPDX-License-Identifier: Apache-2.0
// The exchange of gradients or weights between data-parallel ranks in a step: the choices for it, its time, and its
// exposed time, which no computation hides.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "core/machine.hpp"

namespace gradmeter::predict {

/// The choices for the exchange. The default is that of usual training software: it exchanges gradients in each step,
/// by a ring in a node and a tree between nodes. The default buckets are so small that the exchange runs beside the
/// whole backward pass; the exposed time is that by which the exchange outlasts the backward pass.
struct ExchangeChoice {
  std::string algorithm = {};  ///< name of an all-reduce with a closed form; empty: the default
  /// Bytes of gradients that are sent together. By convention 0 stands for one bucket with all gradients; empty: the
  /// default.
  std::optional<std::size_t> bucket_bytes = {};
  std::uint64_t every = 1;  ///< number of steps between two averages of weights; 0: ranks never exchange
  bool averages_weights = false;
  bool operator==(const ExchangeChoice&) const = default;
};

struct DataExchange {
  double total_s = 0;    ///< time of the exchange, hidden or not; for averages of weights, divided by `every`
  double exposed_s = 0;  ///< the part of `total_s` that computation does not hide
};
/// The times of exchanging so many bytes in a step. window_s: the time in the backward pass that can hide exchange.
/// During the window gradients become ready at an even rate: of n buckets, bucket k is ready after k/n of the window.
/// Buckets are sent one after another. Weights are averaged at the end of a step, where nothing hides the exchange.
/// all_reduce: gives the time of an all-reduce of so many bytes [s].
DataExchange data_exchange(const ExchangeChoice&, double bytes, double window_s,
                           const std::function<double(double)>& all_reduce);

/// The links of ranks that all-reduce together.
struct ExchangeLinks {
  std::uint32_t ranks = 1, ranks_per_node = 1;
  double latency_s = 0;
  /// within: the rate of one rank's links inside its node. between: the part of a node's port rate that this group's
  /// ranks in the node have together (the port is shared evenly with the node's other groups).
  double within_bytes_per_s = 1, between_bytes_per_s = 1;
  double reduce_bytes_per_s = 1;
};
/// The reason why the algorithm does not work on so many ranks; empty: it does. Precondition: `algorithm` is empty or
/// has a closed form.
std::string algorithm_refusal(const std::string& algorithm, std::uint32_t ranks, std::uint32_t ranks_per_node);
/// The time of an all-reduce by the algorithm's closed form [s]. Precondition: the algorithm is named and not refused.
double all_reduce_seconds(const std::string& algorithm, double bytes, const ExchangeLinks&);

}  // namespace gradmeter::predict
