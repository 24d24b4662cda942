#include "dataparallel/buckets.hpp"

#include <algorithm>

namespace gradmeter::dataparallel {
namespace {

/// A convolution's weight [out, in, height, width] is the matrix [out, in · height · width]; a vector is no matrix.
allreduce::TensorPart part_of(const model::Tensor& t, std::size_t bucket_offset) {
  const bool matrix = t.shape.size() > 1 && t.shape.front() > 0;
  return {.offset = t.offset - bucket_offset,
          .count = t.count,
          .rows = matrix ? t.shape.front() : 0,
          .columns = matrix ? t.count / t.shape.front() : 0};
}

}  // namespace

std::vector<Bucket> make_buckets(std::span<const model::Tensor> tensors, std::size_t element_count,
                                 std::size_t bucket_bytes) {
  constexpr std::size_t first_bucket_bytes = std::size_t{1} << 20;
  std::vector<Bucket> out;
  if (tensors.empty()) return out;
  std::size_t first = 0;
  auto close = [&](std::size_t end) {
    const std::size_t from = tensors[first].offset;
    const std::size_t to = end == tensors.size() ? element_count : tensors[end].offset;  // with the padding
    out.push_back({first, end - first, from, to - from});
    for (std::size_t i = first; i < end; ++i) out.back().parts.push_back(part_of(tensors[i], from));
    first = end;
  };
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const std::size_t limit = out.empty() ? std::min(first_bucket_bytes, bucket_bytes) : bucket_bytes;
    const std::size_t with_it = (tensors[i].offset + tensors[i].count - tensors[first].offset) * sizeof(float);
    if (bucket_bytes > 0 && i > first && with_it > limit) close(i);
  }
  close(tensors.size());
  return out;
}

}  // namespace gradmeter::dataparallel
