// Which tensors of a buffer are encoded, and which travel dense; both together.
#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "allreduce/collective.hpp"

namespace gradmeter::allreduce {

/// One inner call: a pack of tensors to encode, or as many dense parts as the batch holds.
struct Job {
  bool coded = false;
  std::vector<TensorPart> parts = {};
  std::size_t elements = 0;
};

/// In the tensors' order; a dense batch of at most `most_dense` elements and a pack of at most `most_packed` tensors
/// take the place of their first part. No tensors: the buffer of `count` elements is one. Cost: O(tensors + batches).
std::vector<Job> cut_into_jobs(std::size_t count, std::span<const TensorPart> tensors, std::size_t most_dense,
                               std::size_t most_packed, const std::function<bool(const TensorPart&)>& is_encoded);

}  // namespace gradmeter::allreduce
