#include "bench/scale/bucket_times.hpp"

#include <algorithm>

#include "core/statistics.hpp"

namespace gradmeter::bench {

BucketSamples::BucketSamples(std::span<const model::Tensor> tensors, std::size_t elements, std::size_t bucket_bytes) {
  for (const auto& b : dataparallel::make_buckets(tensors, elements, bucket_bytes)) {
    const auto held = tensors.subspan(b.first_tensor, b.tensors);
    const model::Tensor& largest = *std::ranges::max_element(held, {}, &model::Tensor::count);
    buckets_.push_back({.first = held.front().name,
                        .last = held.back().name,
                        .tensors = held.size(),
                        .largest = largest.name,
                        .largest_share = static_cast<double>(largest.count) / static_cast<double>(b.count),
                        .bytes = b.count * sizeof(float)});
  }
  series_.resize(buckets_.size());
}

void BucketSamples::add(const dataparallel::StepRecord& r) {
  if (r.calls.size() != buckets_.size()) return;
  const std::vector<double> exposed = dataparallel::exposed_by_call(r);
  for (std::size_t i = 0; i < buckets_.size(); ++i) {
    const dataparallel::Completion& c = r.calls[i].completion;
    series_[i].ready.push_back(c.posted - r.step.begin);
    series_[i].begin.push_back(c.started - r.step.begin);
    series_[i].end.push_back(c.finished - r.step.begin);
    series_[i].exposed.push_back(exposed[i]);
  }
}

std::vector<BucketTimes> BucketSamples::times() const {
  if (series_.empty() || series_.front().ready.empty()) return {};
  std::vector<BucketTimes> all = buckets_;
  for (std::size_t i = 0; i < all.size(); ++i) {
    all[i].ready = core::median(series_[i].ready);
    all[i].begin = core::median(series_[i].begin);
    all[i].end = core::median(series_[i].end);
    all[i].exposed = core::median(series_[i].exposed);
  }
  return all;
}

}  // namespace gradmeter::bench
