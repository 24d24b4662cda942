#include "bench/scale/bucket_times.hpp"

#include <algorithm>

namespace gradmeter::bench {
namespace {

using dataparallel::CallTimes;

std::vector<BucketTimes> name_buckets(std::span<const model::Tensor> tensors, std::size_t elements,
                                      std::size_t bucket_bytes) {
  std::vector<BucketTimes> all;
  for (const auto& b : dataparallel::make_buckets(tensors, elements, bucket_bytes)) {
    const auto held = tensors.subspan(b.first_tensor, b.tensors);
    const model::Tensor& largest = *std::ranges::max_element(held, {}, &model::Tensor::count);
    BucketTimes& named = all.emplace_back();
    named.first = held.front().name;
    named.last = held.back().name;
    named.tensors = held.size();
    named.largest = largest.name;
    named.largest_share = static_cast<double>(largest.count) / static_cast<double>(b.count);
    named.bytes = b.count * sizeof(float);
  }
  return all;
}

}  // namespace

std::vector<BucketTimes> bucket_times(std::span<const model::Tensor> tensors, std::size_t elements,
                                      std::size_t bucket_bytes, const Measurement& m) {
  std::vector<BucketTimes> all = name_buckets(tensors, elements, bucket_bytes);
  std::vector<const StepBlock*> blocks;
  for (const StepBlock& b : m.blocks)
    if (b.calls.size() == all.size()) blocks.push_back(&b);
  if (blocks.empty()) return {};
  for (std::size_t i = 0; i < all.size(); ++i) {
    const auto over_blocks = [&](double CallTimes::*time) {
      std::vector<double> values;
      for (const StepBlock* b : blocks) values.push_back(b->calls[i].*time);
      return estimate(values);
    };
    all[i].ready = over_blocks(&CallTimes::posted);
    all[i].begin = over_blocks(&CallTimes::started);
    all[i].end = over_blocks(&CallTimes::finished);
    if (m.wait_known) all[i].wire = over_blocks(&CallTimes::wire);
    all[i].exposed = over_blocks(&CallTimes::exposed);
  }
  return all;
}

}  // namespace gradmeter::bench
