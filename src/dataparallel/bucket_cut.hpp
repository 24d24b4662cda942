// SPDX-License-Identifier: Apache-2.0
// Computes when an exchange ends whose calls run one after another, from the times at which gradients are ready and the
// cost of a call. Also how early it can end at all, and the cut into buckets with which it ends earliest.
#pragma once
#include <cstddef>
#include <span>
#include <vector>

namespace gradmeter::dataparallel {

/// A tensor's gradient: its bytes, padding included, and when it is ready on all ranks [s]. Tensors are in the order in
/// which they become ready. Calls in this order end no later than calls in any other.
struct ReadyTensor {
  double bytes = 0, ready = 0;
};

/// A call of n bytes takes call + n · byte [s].
struct ExchangeCost {
  double call = 0, byte = 0;
};

/// The cost with the least sum of squared relative errors over timed calls, neither part of it below 0. Calls without
/// bytes or time are left out; where all have one size, only `byte` is known.
ExchangeCost fit_cost(std::span<const double> bytes, std::span<const double> seconds);

/// The time at which the last call ends. ends: for each bucket the number of tensors in it and in those before it,
/// ascending. A call begins when its bucket is ready and the call before it is over.
double exchange_end(std::span<const ReadyTensor>, std::span<const std::size_t> ends, ExchangeCost);

/// No cut ends earlier: each tensor is sent as soon as it is ready and the link is free, and a call costs nothing.
double least_exchange_end(std::span<const ReadyTensor>, double byte_seconds);

/// The ends of the buckets with which the exchange ends earliest. Of cuts that end within `slack` [s] of that, the one
/// with the fewest buckets, since each call also takes time from the computation, which the cost does not show. At most
/// 128 buckets. Cost: O(128 · tensors²).
std::vector<std::size_t> earliest_cut(std::span<const ReadyTensor>, ExchangeCost, double slack);

}  // namespace gradmeter::dataparallel
