// SPDX-License-Identifier: Apache-2.0
// Buckets of consecutive tensors. The gradients of one bucket are exchanged by one call. make_buckets cuts a list of
// tensors into buckets, by size or at given ends. exchange_end predicts when the exchange ends with a given cut, from
// the times at which gradients are ready and the cost of a call; calls run one after another. best_cut finds the cut
// with the fewest buckets whose exchange ends almost as early as possible.
#pragma once
#include <cstddef>
#include <span>
#include <vector>

#include "allreduce/collective.hpp"
#include "model/model.hpp"

namespace gradmeter::dataparallel {

/// Consecutive tensors, which lie in one contiguous range of the flat gradient buffer.
struct Bucket {
  std::size_t first_tensor, tensor_count;
  std::size_t offset, count;                      ///< elements
  std::vector<allreduce::TensorPart> parts = {};  ///< the tensors, with offsets within the bucket
  allreduce::TensorLayout tensor_layout() const { return {.offset_in_step = offset, .tensors = parts}; }
};

/// The first bucket has at most 1 MiB, so that communication starts early. The others have at most `bucket_bytes`, as
/// in PyTorch's DDP (Li et al., VLDB 2020). A tensor that is longer than the limit is a bucket of its own. If
/// `bucket_bytes` is 0, all tensors are in one bucket. If `ends` is not empty, it gives the cut in place of these
/// sizes, as best_cut returns it: for each bucket, the number of tensors in this bucket and in all before it.
/// element_count: the length of the flat buffer; the last bucket reaches to its end, padding included.
std::vector<Bucket> make_buckets(std::span<const model::Tensor>, std::size_t element_count, std::size_t bucket_bytes,
                                 std::span<const std::size_t> ends = {});

/// A tensor's gradient: its bytes, padding included, and the time at which it is ready on all ranks [s]. Tensors are
/// listed in the order in which they become ready; no other order of calls ends earlier.
struct ReadyTensor {
  double bytes = 0, ready = 0;
};

/// The cost of a call of n bytes: call + n · byte [s].
struct ExchangeCost {
  double seconds_per_call = 0, seconds_per_byte = 0;
};

/// Fits the cost to timed calls, with the least sum of squared relative errors; neither `seconds_per_call` nor
/// `seconds_per_byte` is below 0. Calls without bytes or time are left out. If all calls have the same size,
/// `seconds_per_call` is 0.
ExchangeCost fit_cost(std::span<const double> bytes, std::span<const double> seconds);

/// The time at which the last call ends [s]. ends: for each bucket, the number of tensors in this bucket and in all
/// before it. A call begins when its bucket is ready and the previous call has ended.
double exchange_end(std::span<const ReadyTensor>, std::span<const std::size_t> ends, ExchangeCost);

/// A lower bound of `exchange_end` for all cuts [s]: the end if each tensor were a bucket of its own, and a call took
/// no time besides that of its bytes.
double least_exchange_end(std::span<const ReadyTensor>, double seconds_per_byte);

/// The ends of the buckets of the best cut: among all cuts whose exchange ends at most `slack` [s] after the earliest
/// possible end, the one with the fewest buckets. (Each call also takes time from the computation, which ExchangeCost
/// does not count.) At most 128 buckets. Cost: O(128 · tensors²).
std::vector<std::size_t> best_cut(std::span<const ReadyTensor>, ExchangeCost, double slack);

}  // namespace gradmeter::dataparallel
