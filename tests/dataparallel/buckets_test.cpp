// SPDX-License-Identifier: Apache-2.0
#include "dataparallel/strategy.hpp"

#include <gtest/gtest.h>

#include "core/format.hpp"
#include "core/random.hpp"

namespace gradmeter::dataparallel {
namespace {

constexpr std::size_t KiB = 1024, MiB = 1024 * KiB;

struct Layout {
  std::vector<model::Tensor> tensors;
  std::size_t elements = 0;
};

/// Tensors of so many floats, each on a multiple of 16, as models lay them out.
Layout lay_out(const std::vector<std::size_t>& counts) {
  Layout out;
  for (const std::size_t n : counts) {
    out.tensors.push_back({fmt::format("t{}", out.tensors.size()), {n}, out.elements, n});
    out.elements += (n + 15) / 16 * 16;
  }
  return out;
}

std::vector<Bucket> buckets_of(const Layout& l, std::size_t bytes) {
  return make_buckets(l.tensors, l.elements, bytes);
}

/// Every tensor and every element, padding included, is in exactly one bucket, in order.
void expect_cover(const Layout& l, const std::vector<Bucket>& buckets) {
  std::size_t tensor = 0, element = 0;
  for (const Bucket& b : buckets) {
    EXPECT_EQ(b.first_tensor, tensor);
    EXPECT_EQ(b.offset, element);
    EXPECT_EQ(b.offset, l.tensors[b.first_tensor].offset);
    EXPECT_GT(b.tensors, 0u);
    tensor += b.tensors;
    element += b.count;
  }
  EXPECT_EQ(tensor, l.tensors.size());
  EXPECT_EQ(element, l.elements);
}

/// What DDP counts: from the first tensor's begin to the last one's end [bytes].
std::size_t filled(const Layout& l, const Bucket& b, std::size_t tensors) {
  const auto& last = l.tensors[b.first_tensor + tensors - 1];
  return (last.offset + last.count - b.offset) * sizeof(float);
}

TEST(Buckets, TheFirstHoldsAtMostAMebibyteAndTheOthersAtMostTheLimit) {
  // Tensors of 256 KiB: four in the first mebibyte, then sixteen in each 4 MiB.
  const Layout l = lay_out(std::vector<std::size_t>(40, 64 * KiB));
  const auto buckets = buckets_of(l, 4 * MiB);
  ASSERT_EQ(buckets.size(), 4u);
  EXPECT_EQ(buckets[0].tensors, 4u);
  EXPECT_EQ(buckets[1].tensors, 16u);
  EXPECT_EQ(buckets[2].tensors, 16u);
  EXPECT_EQ(buckets[3].tensors, 4u);
  expect_cover(l, buckets);
}

TEST(Buckets, ALimitBelowAMebibyteHoldsForTheFirstAsWell) {
  const Layout l = lay_out(std::vector<std::size_t>(8, 16 * KiB));
  for (const Bucket& b : buckets_of(l, 128 * KiB)) EXPECT_EQ(b.tensors, 2u);
}

TEST(Buckets, ATensorLargerThanTheLimitIsAloneWhereverItStands) {
  for (const std::size_t at : {0u, 1u, 2u, 3u}) {
    std::vector<std::size_t> counts(3, 100);
    counts.insert(counts.begin() + static_cast<std::ptrdiff_t>(at), 3 * MiB);
    const Layout l = lay_out(counts);
    const auto buckets = buckets_of(l, 2 * MiB);
    expect_cover(l, buckets);
    bool found = false;
    for (const Bucket& b : buckets) {
      if (at < b.first_tensor || at >= b.first_tensor + b.tensors) continue;
      EXPECT_EQ(b.tensors, 1u) << at;
      found = true;
    }
    EXPECT_TRUE(found);
  }
}

TEST(Buckets, ZeroMeansOneBucketForAll) {
  const Layout l = lay_out({10, 2 * MiB, 7, 3 * MiB, 1});
  const auto buckets = buckets_of(l, 0);
  ASSERT_EQ(buckets.size(), 1u);
  expect_cover(l, buckets);
}

TEST(Buckets, OneByteMeansOneBucketForEachTensor) {
  const Layout l = lay_out({10, 1, 7, 33, 1});
  const auto buckets = buckets_of(l, 1);
  EXPECT_EQ(buckets.size(), 5u);
  expect_cover(l, buckets);
}

TEST(Buckets, PaddingGoesAlongWithTheTensorBeforeIt) {
  const Layout l = lay_out({10, 10});
  const auto buckets = buckets_of(l, 1);
  ASSERT_EQ(buckets.size(), 2u);
  EXPECT_EQ(buckets[0].count, 16u);
  EXPECT_EQ(buckets[1].count, 16u);
}

TEST(Buckets, EndWhereTheyAreTold) {
  const Layout l = lay_out({10, 2 * MiB, 7, 3 * MiB, 1});
  const std::vector<std::size_t> ends{1, 4, 5};
  const auto buckets = make_buckets(l.tensors, l.elements, MiB, ends);
  ASSERT_EQ(buckets.size(), 3u);
  expect_cover(l, buckets);
  EXPECT_EQ(buckets[1].tensors, 3u);
  EXPECT_EQ(buckets[1].parts.size(), 3u);
  EXPECT_EQ(buckets_of(l, MiB).size(), 5u) << "control: the size alone cuts otherwise";
}

TEST(Buckets, NoTensorsNoBuckets) { EXPECT_TRUE(make_buckets({}, 0, MiB).empty()); }

TEST(Buckets, AreAsFullAsTheLimitAllowsForAnyTensors) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const core::Random random(seed, 0);
    std::vector<std::size_t> counts;
    for (std::uint64_t i = 0; i < 1 + random.below(0, 30); ++i) counts.push_back(1 + random.below(i + 1, 400 * KiB));
    const Layout l = lay_out(counts);
    const std::size_t limit_bytes = 64 * KiB + random.below(100, 4 * MiB);
    const auto buckets = buckets_of(l, limit_bytes);
    expect_cover(l, buckets);
    for (std::size_t i = 0; i < buckets.size(); ++i) {
      const Bucket& b = buckets[i];
      const std::size_t limit = i == 0 ? std::min(MiB, limit_bytes) : limit_bytes;
      if (b.tensors > 1) {
        EXPECT_LE(filled(l, b, b.tensors), limit) << "seed " << seed << " bucket " << i;
      }
      if (i + 1 < buckets.size()) {
        EXPECT_GT(filled(l, b, b.tensors + 1), limit) << "seed " << seed << " bucket " << i;
      }
    }
  }
}

}  // namespace
}  // namespace gradmeter::dataparallel
