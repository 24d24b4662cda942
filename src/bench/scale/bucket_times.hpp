// When each bucket of the gradients was ready, under way and waited for: why communication was exposed.
#pragma once
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bench/scale/causes.hpp"
#include "dataparallel/buckets.hpp"

namespace gradmeter::bench {

/// One bucket on the rank that computed longest, as the row's own parts of a step: medians over the blocks of each
/// block's median [s], from the begin of the step, with their intervals.
struct BucketTimes {
  std::string first, last;  ///< tensors, in the order in which they become ready
  std::size_t tensors = 0;
  std::string largest;       ///< of them
  double largest_share = 0;  ///< of the bucket's elements
  std::size_t bytes = 0;
  Estimate ready, begin, end;    ///< given to the fabric; its exchange
  std::optional<Estimate> wire;  ///< since all ranks had begun; nothing where the clocks cannot tell
  Estimate exposed;              ///< of the exchange outside computation; time of several counts for the first
};

/// Of the blocks whose steps had one call for each bucket. Empty: none had.
std::vector<BucketTimes> bucket_times(std::span<const model::Tensor>, std::size_t elements, std::size_t bucket_bytes,
                                      const Measurement&);

}  // namespace gradmeter::bench
