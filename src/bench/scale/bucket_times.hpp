// When each bucket of the gradients was ready, under way and waited for: why communication was exposed.
#pragma once
#include <string>
#include <vector>

#include "dataparallel/buckets.hpp"
#include "dataparallel/decorators/decomposition.hpp"

namespace gradmeter::bench {

/// One bucket on one rank: medians over the samples [s], from the begin of the step.
struct BucketTimes {
  std::string first, last;  ///< tensors, in the order in which they become ready
  std::size_t tensors = 0;
  std::string largest;       ///< of them
  double largest_share = 0;  ///< of the bucket's elements
  std::size_t bytes = 0;
  double ready = 0, begin = 0, end = 0;  ///< given to the fabric; its exchange
  double exposed = 0;                    ///< of the exchange outside computation; time of several counts for the first
};

/// Collects the calls of one rank's steps.
class BucketSamples {
 public:
  BucketSamples(std::span<const model::Tensor>, std::size_t elements, std::size_t bucket_bytes);
  /// A step whose calls are not one for each bucket is left out.
  void add(const dataparallel::StepRecord&);
  /// Empty: no step had them.
  std::vector<BucketTimes> times() const;

 private:
  struct Series {
    std::vector<double> ready, begin, end, exposed;
  };
  std::vector<BucketTimes> buckets_;
  std::vector<Series> series_;
};

}  // namespace gradmeter::bench
