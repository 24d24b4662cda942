// SPDX-License-Identifier: Apache-2.0
// How data-parallel ranks exchange gradients or weights in a step, and what of it computation does not hide.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "core/machine.hpp"

namespace gradmeter::predict {

/// What was chosen for the exchange. The default is what training software usually does: a ring in a node and a tree
/// between nodes, of gradients in each step, in buckets so small that only what the backward pass is too short for
/// shows.
struct ExchangeChoice {
  std::string algorithm = {};                    ///< of all-reduces, one with a closed form; empty: the default
  std::optional<std::size_t> bucket_bytes = {};  ///< of gradients that are sent together; 0: all of them in one
  std::uint64_t every = 1;  ///< 0: ranks do not exchange; above 1: weights are averaged after so many steps
  bool averages_weights = false;
};

struct DataExchange {
  double total_s = 0;  ///< of a step, as if nothing hid it
  double shown_s = 0;  ///< the part of it that computation does not hide
};
/// One step's exchange of so many bytes. window_s: the part of the backward pass that can hide it, in which gradients
/// become ready at an even rate: bucket k of n after k/n of it. Buckets leave one after another. Averages of weights
/// stand at the end of a step, where nothing hides them. all_reduce: the time of so many bytes [s].
DataExchange data_exchange(const ExchangeChoice&, double bytes, double window_s,
                           const std::function<double(double)>& all_reduce);

/// The links of ranks that all-reduce together.
struct ExchangeLinks {
  std::uint32_t ranks = 1, ranks_per_node = 1;
  double latency_s = 0;
  double within_bytes_per_s = 1, between_bytes_per_s = 1;  ///< of a rank in a node; of these ranks' share of its port
  double reduce_bytes_per_s = 1;
};
/// Why the algorithm does not work on so many ranks; empty: it does. Precondition: it has a closed form, or is empty.
std::string algorithm_refusal(const std::string& algorithm, std::uint32_t ranks, std::uint32_t ranks_per_node);
/// By the algorithm's closed form. Precondition: not refused.
double all_reduce_seconds(const std::string& algorithm, double bytes, const ExchangeLinks&);

}  // namespace gradmeter::predict
