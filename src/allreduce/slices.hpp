// How a buffer is cut into slices, each of which runs the schedule on its own, so that transfer overlaps reduction.
#pragma once
#include <cstddef>
#include <cstdint>

#include "allreduce/schedule.hpp"

namespace gradmeter::allreduce {

struct Slices {
  std::size_t count = 1;     ///< at least 1, also for an empty buffer
  std::size_t elements = 0;  ///< in each but the last
  std::size_t begin(std::size_t s) const { return s * elements; }
  std::size_t length(std::size_t s, std::size_t total) const {
    const std::size_t b = begin(s);
    return b >= total ? 0 : (total - b < elements ? total - b : elements);
  }
};

/// Slices of about `message_bytes` a block, starting on multiples of 16 elements.
Slices cut(std::size_t elements, std::size_t element_bytes, std::uint32_t blocks, std::size_t message_bytes);

/// Where block b begins when n elements are cut into `blocks` parts [elements]; block_begin(n, blocks, blocks) = n.
/// Long buffers are cut at multiples of 16 elements, so that blocks start on cache lines.
std::size_t block_begin(std::size_t n, std::uint32_t blocks, std::uint32_t b);

/// Payload bytes that `rank` sends when the schedule runs over a buffer cut like this: the sum over its messages.
/// Cost: O(steps), once for each of the two slice lengths.
std::uint64_t payload_bytes(const Schedule&, std::uint32_t rank, std::size_t elements, std::size_t element_bytes,
                            Slices);

}  // namespace gradmeter::allreduce
