// SPDX-License-Identifier: Apache-2.0
// Predicts when the exchange of a step's gradients ends, if its calls run one after another: from the times at which
// gradients are ready and the cost of a call. Finds the cut into buckets with which the exchange ends earliest, and a
// lower bound for all cuts.
#pragma once
#include <cstddef>
#include <span>
#include <vector>

namespace gradmeter::dataparallel {

/// A tensor's gradient: its bytes, padding included, and the time at which it is ready on all ranks [s]. Tensors are
/// listed in the order in which they become ready; no other order of calls ends earlier.
struct ReadyTensor {
  double bytes = 0, ready = 0;
};

/// The cost of a call of n bytes: call + n · byte [s].
struct ExchangeCost {
  double call = 0, byte = 0;
};

/// Fits the cost to timed calls, with the least sum of squared relative errors; neither `call` nor `byte` is below 0.
/// Calls without bytes or time are left out. If all calls have the same size, `call` is 0.
ExchangeCost fit_cost(std::span<const double> bytes, std::span<const double> seconds);

/// The time at which the last call ends. ends: for each bucket the number of tensors in it and in those before it,
/// ascending. A call begins when its bucket is ready and the previous call has ended.
double exchange_end(std::span<const ReadyTensor>, std::span<const std::size_t> ends, ExchangeCost);

/// A lower bound of `exchange_end` for all cuts: each tensor is a bucket of its own, and a call has no cost besides its
/// bytes.
double least_exchange_end(std::span<const ReadyTensor>, double seconds_per_byte);

/// The ends of the buckets of the best cut: among all cuts whose exchange ends at most `slack` [s] after the earliest
/// possible end, the one with the fewest buckets. (Each call also takes time from the computation, which ExchangeCost
/// does not count.) At most 128 buckets. Cost: O(128 · tensors²).
std::vector<std::size_t> best_cut(std::span<const ReadyTensor>, ExchangeCost, double slack);

}  // namespace gradmeter::dataparallel
