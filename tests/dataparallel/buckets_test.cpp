// SPDX-License-Identifier: Apache-2.0
// Buckets hold every tensor once and are as full as their limit allows. The cut into buckets is the best of all cuts of
// a few tensors, and the bound is below them all and reached.
#include "dataparallel/buckets.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

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
    EXPECT_GT(b.tensor_count, 0u);
    tensor += b.tensor_count;
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
  EXPECT_EQ(buckets[0].tensor_count, 4u);
  EXPECT_EQ(buckets[1].tensor_count, 16u);
  EXPECT_EQ(buckets[2].tensor_count, 16u);
  EXPECT_EQ(buckets[3].tensor_count, 4u);
  expect_cover(l, buckets);
}

TEST(Buckets, ALimitBelowAMebibyteHoldsForTheFirstAsWell) {
  const Layout l = lay_out(std::vector<std::size_t>(8, 16 * KiB));
  for (const Bucket& b : buckets_of(l, 128 * KiB)) EXPECT_EQ(b.tensor_count, 2u);
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
      if (at < b.first_tensor || at >= b.first_tensor + b.tensor_count) continue;
      EXPECT_EQ(b.tensor_count, 1u) << at;
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
  EXPECT_EQ(buckets[1].tensor_count, 3u);
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
      if (b.tensor_count > 1) {
        EXPECT_LE(filled(l, b, b.tensor_count), limit) << "seed " << seed << " bucket " << i;
      }
      if (i + 1 < buckets.size()) {
        EXPECT_GT(filled(l, b, b.tensor_count + 1), limit) << "seed " << seed << " bucket " << i;
      }
    }
  }
}

/// Every cut of n tensors: bit i of a number says that a bucket ends behind tensor i.
std::vector<std::vector<std::size_t>> all_cuts(std::size_t n) {
  std::vector<std::vector<std::size_t>> out;
  for (std::size_t bits = 0; bits < std::size_t{1} << (n - 1); ++bits) {
    auto& ends = out.emplace_back();
    for (std::size_t i = 0; i + 1 < n; ++i)
      if ((bits >> i & 1) != 0) ends.push_back(i + 1);
    ends.push_back(n);
  }
  return out;
}

/// Up to ten tensors with gradients that become ready at random times, some at the same.
std::vector<ReadyTensor> draw(std::uint64_t number) {
  const core::Random random(11, number);
  std::vector<ReadyTensor> out(1 + random.below(0, 10));
  double ready = 0;
  for (std::size_t i = 0; i < out.size(); ++i) {
    if (random.uniform(3 * i + 1) > 0.3) ready += 20 * random.uniform(3 * i + 2);
    out[i] = {.bytes = 1 + 1000 * random.uniform(3 * i + 3) * random.uniform(3 * i + 3), .ready = ready};
  }
  return out;
}

constexpr std::uint64_t cases = 300;
const ExchangeCost costs[] = {{.seconds_per_call = 0, .seconds_per_byte = 0.02},
                              {.seconds_per_call = 2, .seconds_per_byte = 0.02},
                              {.seconds_per_call = 20, .seconds_per_byte = 0.01}};

TEST(EarliestCut, IsTheBestOfAllCuts) {
  std::size_t cut_somewhere = 0, not_everywhere = 0;
  for (std::uint64_t i = 0; i < cases; ++i) {
    const auto tensors = draw(i);
    for (const ExchangeCost& cost : costs) {
      constexpr double rounding = 1e-9;
      const auto ends = best_cut(tensors, cost, rounding);
      ASSERT_EQ(ends.back(), tensors.size());
      double best = std::numeric_limits<double>::infinity(), best_of_fewer = best;
      for (const auto& other : all_cuts(tensors.size())) {
        const double at = exchange_end(tensors, other, cost);
        best = std::min(best, at);
        if (other.size() < ends.size()) best_of_fewer = std::min(best_of_fewer, at);
      }
      ASSERT_NEAR(exchange_end(tensors, ends, cost), best, 2 * rounding);
      ASSERT_GT(best_of_fewer, best) << "the fewest buckets of those that end as early";
      cut_somewhere += ends.size() > 1;
      not_everywhere += ends.size() < tensors.size();
    }
  }
  EXPECT_GT(cut_somewhere, cases / 2) << "control: one bucket is not always the best";
  EXPECT_GT(not_everywhere, cases / 2) << "control: nor is a bucket for each tensor";
}

TEST(EarliestCut, WithSlackHasTheFewestBucketsThatEndEarlyEnough) {
  std::size_t fewer = 0;
  for (std::uint64_t i = 0; i < cases; ++i) {
    const auto tensors = draw(i);
    const double slack = 3, best = exchange_end(tensors, best_cut(tensors, costs[1], 0), costs[1]);
    const auto ends = best_cut(tensors, costs[1], slack);
    EXPECT_LE(exchange_end(tensors, ends, costs[1]), best + slack + 1e-9);
    for (const auto& other : all_cuts(tensors.size())) {
      if (other.size() < ends.size()) {
        EXPECT_GT(exchange_end(tensors, other, costs[1]), best + slack - 1e-9);
      }
    }
    fewer += ends.size() < best_cut(tensors, costs[1], 0).size();
  }
  EXPECT_GT(fewer, 0U) << "control: slack changes something";
}

TEST(EarliestCut, EndsInSmallBucketsWhereTheLinkIsNearlyBusy) {
  // A gradient each 10 s takes 9 s, a call 1 s: sent one by one they are never late, and no later than with any others.
  std::vector<ReadyTensor> tensors;
  for (int i = 1; i <= 8; ++i) tensors.push_back({.bytes = 100, .ready = 10.0 * i});
  const ExchangeCost cost{.seconds_per_call = 1, .seconds_per_byte = 0.09};
  EXPECT_DOUBLE_EQ(exchange_end(tensors, std::vector<std::size_t>{1, 2, 3, 4, 5, 6, 7, 8}, cost), 90);
  EXPECT_DOUBLE_EQ(exchange_end(tensors, best_cut(tensors, cost, 0), cost), 90);
  EXPECT_DOUBLE_EQ(exchange_end(tensors, std::vector<std::size_t>{4, 8}, cost), 117) << "control: two equal halves";
  // Several cuts end at 90, and one has the fewest buckets: the early ones are long, for which there is time.
  const auto roomy = best_cut(tensors, {.seconds_per_call = 1, .seconds_per_byte = 0.04}, 0);
  EXPECT_LT(roomy.size(), 8U);
  EXPECT_GT(roomy.front(), roomy.back() - roomy[roomy.size() - 2]);
}

TEST(EarliestCut, OfNothingIsNothing) {
  EXPECT_TRUE(best_cut({}, costs[0], 0).empty());
  EXPECT_DOUBLE_EQ(exchange_end({}, {}, costs[1]), 0);
}

TEST(EarliestCut, HasAtMost128Buckets) {
  std::vector<ReadyTensor> tensors;
  for (int i = 1; i <= 200; ++i) tensors.push_back({.bytes = 1, .ready = 1.0 * i});
  EXPECT_LE(best_cut(tensors, {.seconds_per_byte = 1}, 0).size(), 128U);
}

TEST(LeastExchangeEnd, IsBelowAllCutsAndReachedByOne) {
  std::size_t missed = 0;
  for (std::uint64_t i = 0; i < cases; ++i) {
    const auto tensors = draw(i);
    // Worked out by hand: when each tensor is ready, and how long it and all after it take.
    double by_hand = 0;
    for (std::size_t first = 0; first < tensors.size(); ++first) {
      double bytes = 0;
      for (std::size_t k = first; k < tensors.size(); ++k) bytes += tensors[k].bytes;
      by_hand = std::max(by_hand, tensors[first].ready + 0.02 * bytes);
    }
    const double least = least_exchange_end(tensors, 0.02);
    EXPECT_NEAR(least, by_hand, 1e-9);
    double best = std::numeric_limits<double>::infinity();
    for (const auto& ends : all_cuts(tensors.size())) {
      const double end = exchange_end(tensors, ends, costs[0]);
      EXPECT_GE(end, least - 1e-9);
      best = std::min(best, end);
      missed += end > least + 1e-6;
    }
    EXPECT_NEAR(best, least, 1e-9);
  }
  EXPECT_GT(missed, cases) << "control: most cuts end later";
}

TEST(LeastExchangeEnd, IsNotBeatenByAnotherOrder) {
  for (std::uint64_t i = 0; i < cases; ++i) {
    auto tensors = draw(i);
    if (tensors.size() > 6) tensors.resize(6);
    const double least = least_exchange_end(tensors, 0.02);
    std::vector<std::size_t> order(tensors.size());
    for (std::size_t k = 0; k < order.size(); ++k) order[k] = k;
    do {
      double end = 0;
      for (const std::size_t k : order) end = std::max(end, tensors[k].ready) + 0.02 * tensors[k].bytes;
      EXPECT_GE(end, least - 1e-9);
    } while (std::ranges::next_permutation(order).found);
  }
}

TEST(FitCost, FindsBothPartsOfExactTimes) {
  const std::vector<double> bytes{1e3, 1e5, 1e6, 4e6}, seconds{1.3e-3 + 1e-5, 1.3e-3 + 1e-3, 1.3e-3 + 1e-2, 4.13e-2};
  const auto fit = fit_cost(bytes, seconds);
  EXPECT_NEAR(fit.seconds_per_call, 1.3e-3, 1e-9);
  EXPECT_NEAR(fit.seconds_per_byte, 1e-8, 1e-14);
}

TEST(FitCost, HasNoPartBelowZero) {
  // Small calls that take less than their share of the large ones' time: no cost of a call.
  const auto slow = fit_cost(std::vector<double>{1, 2, 100}, std::vector<double>{0.5, 1.2, 150});
  EXPECT_EQ(slow.seconds_per_call, 0);
  EXPECT_GT(slow.seconds_per_byte, 0);
  const auto flat = fit_cost(std::vector<double>{1, 2, 100}, std::vector<double>{5, 4, 3});
  EXPECT_EQ(flat.seconds_per_byte, 0);
  EXPECT_GT(flat.seconds_per_call, 0);
}

TEST(FitCost, OfOneSizeOrNothingIsByTheByte) {
  const auto one = fit_cost(std::vector<double>{100, 100}, std::vector<double>{2, 2});
  EXPECT_EQ(one.seconds_per_call, 0);
  EXPECT_NEAR(one.seconds_per_byte, 0.02, 1e-12);
  const auto none = fit_cost(std::vector<double>{0, 5}, std::vector<double>{1, 0});
  EXPECT_EQ(none.seconds_per_call, 0);
  EXPECT_EQ(none.seconds_per_byte, 0);
}

}  // namespace
}  // namespace gradmeter::dataparallel
