// SPDX-License-Identifier: Apache-2.0
// Exposed time by bucket: on made-up steps it is what interval arithmetic by hand gives, and adds up to the step's.
#include "bench/scale/step_timeline.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "core/random.hpp"

namespace gradmeter::bench {
namespace {

using dataparallel::CallRecord;
using dataparallel::StepRecord;

CallRecord call(double posted, double started, double finished) {
  CallRecord c{.label = "all_reduce", .completion = {}};
  c.completion.posted = posted, c.completion.started = started, c.completion.finished = finished;
  return c;
}

/// Two computations, and calls under the second, behind it, and on both sides of its end.
StepRecord step(std::vector<CallRecord> calls) {
  StepRecord r{.step = {100, 120}, .computations = {}, .calls = std::move(calls)};
  r.computations.push_back({.label = "forward", .when = {100, 104}});
  r.computations.push_back({.label = "backward", .when = {104, 112}});
  return r;
}

std::vector<model::Tensor> tensors() {
  return {{.name = "fc8", .shape = {300}, .offset = 0, .count = 300'000},
          {.name = "fc8.bias", .shape = {16}, .offset = 300'000, .count = 16},
          {.name = "fc7", .shape = {900}, .offset = 300'016, .count = 900'000},
          {.name = "conv", .shape = {64}, .offset = 1'200'016, .count = 64}};
}

TEST(BucketTimes, ExposeWhatIsOutsideComputationAndTheCallsBefore) {
  const auto calls =
      dataparallel::decompose(step({call(105, 105, 107), call(108, 109, 116), call(112, 113, 119)}), {}).calls;
  ASSERT_EQ(calls.size(), 3U);
  EXPECT_DOUBLE_EQ(calls[0].exposed, 0);
  EXPECT_DOUBLE_EQ(calls[1].exposed, 4);
  EXPECT_DOUBLE_EQ(calls[2].exposed, 3) << "the time before 116 is the second's";
}

TEST(BucketTimes, AreOnTheWireOnceTheLastRankHasBegun) {
  const std::vector<double> last{110, 90, 130};
  const auto calls =
      dataparallel::decompose(step({call(105, 106, 112), call(108, 109, 116), call(112, 113, 119)}), last).calls;
  EXPECT_DOUBLE_EQ(calls[0].transfer, 2);
  EXPECT_DOUBLE_EQ(calls[1].transfer, 7) << "the others were there before";
  EXPECT_DOUBLE_EQ(calls[2].transfer, 0) << "clocks that differ: no less than nothing";
  EXPECT_DOUBLE_EQ(calls[0].posted, 5);
}

TEST(BucketTimes, AddUpToTheStepsExposedTime) {
  const core::Random random(7, 0);
  for (std::uint64_t i = 0; i < 200; ++i) {
    std::vector<CallRecord> calls;
    for (std::uint64_t c = 0; c < 5; ++c) {
      const double begin = 104 + 12 * random.uniform(20 * i + 2 * c);
      calls.push_back(call(begin, begin, begin + 6 * random.uniform(20 * i + 2 * c + 1)));
    }
    const auto parts = dataparallel::decompose(step(calls), {});
    double sum = 0;
    for (const auto& c : parts.calls) sum += c.exposed;
    EXPECT_NEAR(sum, parts.exposed, 1e-9);
  }
}

std::vector<dataparallel::Bucket> buckets(std::size_t bytes) {
  return dataparallel::make_buckets(tensors(), 1'200'080, bytes);
}

StepBlock block(std::vector<dataparallel::CallTimes> calls) {
  StepBlock b;
  b.calls = std::move(calls);
  return b;
}

TEST(BucketTimes, AreMediansOverTheBlocksThatHaveOneCallForEachBucket) {
  Measurement m;
  EXPECT_TRUE(bucket_times(tensors(), buckets(0), m).empty());
  m.blocks.push_back(block({{}, {}}));
  EXPECT_TRUE(bucket_times(tensors(), buckets(0), m).empty()) << "one bucket, two calls";
  for (const double late : {0.0, 1.0, 5.0, 1.0, 1.0, 1.0, 1.0})
    m.blocks.push_back(block(
        {{.posted = 11 + late, .started = 12 + late, .finished = 15 + late, .transfer = 2, .exposed = 2 + late}}));
  const auto times = bucket_times(tensors(), buckets(0), m);
  ASSERT_EQ(times.size(), 1U);
  EXPECT_EQ(times[0].first, "fc8");
  EXPECT_EQ(times[0].last, "conv");
  EXPECT_EQ(times[0].tensors, 4U);
  EXPECT_EQ(times[0].largest, "fc7");
  EXPECT_NEAR(times[0].largest_share, 0.75, 1e-3);
  EXPECT_DOUBLE_EQ(times[0].ready.value, 12);
  EXPECT_DOUBLE_EQ(times[0].begin.value, 13);
  EXPECT_DOUBLE_EQ(times[0].end.value, 16);
  EXPECT_DOUBLE_EQ(times[0].exposed.value, 3);
  EXPECT_DOUBLE_EQ(times[0].exposed.ci95.value().low, 2);
  EXPECT_DOUBLE_EQ(times[0].exposed.ci95.value().high, 7);
  ASSERT_TRUE(times[0].wire.has_value());
  EXPECT_DOUBLE_EQ(times[0].wire->value, 2);
  m.wait_known = false;
  EXPECT_FALSE(bucket_times(tensors(), buckets(0), m)[0].wire.has_value()) << "the clocks cannot tell";
}

TEST(BucketTimes, HaveTheBucketsOfTheExchange) {
  constexpr std::size_t bytes = std::size_t{2} << 20;
  const std::size_t count = buckets(bytes).size();
  EXPECT_GT(count, 1U);
  Measurement m;
  m.blocks.push_back(block(std::vector<dataparallel::CallTimes>(count)));
  EXPECT_EQ(bucket_times(tensors(), buckets(bytes), m).size(), count);
}

/// Each tensor's elements take as many seconds on the link as here, the padding that the last has included.
constexpr double exchange_s = 1'200'080;

TEST(LeastExposed, IsWhatTheLinkHasLeftAfterBackwardAndUpdates) {
  Measurement m;
  EXPECT_FALSE(least_exposed(tensors(), exchange_s, m).has_value()) << "no ready times";
  StepBlock b;
  b.ready = {0, 1000, 2000, 500'000};
  m.blocks.push_back(b);
  // fc8's 300,000 are on the link from 0, and all the others wait for it: the link is busy until the end.
  EXPECT_DOUBLE_EQ(least_exposed(tensors(), exchange_s, m).value(), exchange_s - 500'000);
  m.blocks[0].parts.update = 200'000;
  EXPECT_DOUBLE_EQ(least_exposed(tensors(), exchange_s, m).value(), exchange_s - 700'000) << "updates hide some";
  m.blocks[0].parts.update = 1e6;
  EXPECT_DOUBLE_EQ(least_exposed(tensors(), exchange_s, m).value(), 0) << "and at most all";
  m.blocks[0].parts.update = 0;
  m.blocks[0].ready = {0, 1000, 2000, 2'000'000};
  EXPECT_DOUBLE_EQ(least_exposed(tensors(), exchange_s, m).value(), 64)
      << "all but conv, which is ready last, are there";
  m.blocks[0].ready = {2'000'000, 2'000'000, 2'000'000, 2'000'000};
  EXPECT_DOUBLE_EQ(least_exposed(tensors(), exchange_s, m).value(), exchange_s) << "control: nothing can be hidden";
  EXPECT_FALSE(least_exposed(tensors(), std::nan(""), m).has_value()) << "the link's rate is unknown";
}

}  // namespace
}  // namespace gradmeter::bench
