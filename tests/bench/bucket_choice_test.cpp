// SPDX-License-Identifier: Apache-2.0
#include "bench/train/training.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/registry.hpp"

namespace gradmeter::bench {
namespace {

using testing::ElementsAre;

std::vector<std::size_t> candidates(const std::string& name) {
  const auto m = model::make_model(name, {.features = 784, .classes = 10});
  return bucket_candidates(m->tensors(), m->element_count());
}

constexpr std::size_t K = 1024, M = K * K;

TEST(BucketCandidates, AreThoseThatCutTheModelDifferently) {
  // Layers of 1 MiB and a little: each is a bucket of its own at 256 KiB and at 1 MiB.
  EXPECT_THAT(candidates("mlp:784-512-512-512-512-512-512-512-10"), ElementsAre(0, 256 * K, 4 * M, 25 * M));
  // Layers of 6, 16 and 16 MiB: the first two go together at 25 MiB only.
  EXPECT_THAT(candidates("mlp:784-2048-2048-2048-10"), ElementsAre(0, 256 * K, 25 * M));
}

TEST(BucketCandidates, OfASmallModelAreOneBucket) { EXPECT_THAT(candidates("mlp:784-32-10"), ElementsAre(0)); }

TEST(FastestCandidate, IsThatOfTheSmallestMedian) {
  // The first has the smallest mean, the last the smallest time.
  EXPECT_EQ(fastest_candidate({{3, 3, 3}, {2, 2, 30}, {1, 9, 9}}), 1u);
  EXPECT_EQ(fastest_candidate({{2, 2, 2}}), 0u);
}

}  // namespace
}  // namespace gradmeter::bench
