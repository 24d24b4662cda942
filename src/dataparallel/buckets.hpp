// Tensors in ready order, gathered into buckets that are long enough for a message.
#pragma once
#include <cstddef>
#include <span>
#include <vector>

#include "allreduce/collective.hpp"
#include "model/model.hpp"

namespace gradmeter::dataparallel {

/// Consecutive tensors: one contiguous range of the flat gradient buffer.
struct Bucket {
  std::size_t first_tensor, tensors;
  std::size_t offset, count;                      ///< elements
  std::vector<allreduce::TensorPart> parts = {};  ///< the tensors, where they lie in the bucket
  allreduce::TensorLayout tensor_layout() const { return {.first = offset, .tensors = parts}; }
};

/// The first bucket is at most 1 MiB, so that communication starts early, the others at most `bucket_bytes`, as in
/// PyTorch's DDP (Li et al., VLDB 2020); a tensor larger than that is a bucket of its own. 0: one bucket for all.
std::vector<Bucket> make_buckets(std::span<const model::Tensor>, std::size_t element_count, std::size_t bucket_bytes);

}  // namespace gradmeter::dataparallel
