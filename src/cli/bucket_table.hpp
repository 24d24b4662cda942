// The exchange of a point's gradients bucket by bucket, below the tables of a sweep (--per-bucket).
#pragma once
#include <span>
#include <string>

#include "bench/scale/scale.hpp"

namespace gradmeter::cli {

/// With the row's exposed time beside their sum. No buckets: a line that says why.
std::string bucket_table(const core::Point&, std::span<const bench::BucketTimes>);

}  // namespace gradmeter::cli
