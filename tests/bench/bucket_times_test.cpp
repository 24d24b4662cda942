// Exposed time by bucket: on made-up steps it is what interval arithmetic by hand gives, and adds up to the step's.
#include "bench/scale/bucket_times.hpp"

#include <gtest/gtest.h>

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
  const auto exposed =
      dataparallel::exposed_by_call(step({call(105, 105, 107), call(108, 109, 116), call(112, 113, 119)}));
  ASSERT_EQ(exposed.size(), 3U);
  EXPECT_DOUBLE_EQ(exposed[0], 0);
  EXPECT_DOUBLE_EQ(exposed[1], 4);
  EXPECT_DOUBLE_EQ(exposed[2], 3) << "the time before 116 is the second's";
}

TEST(BucketTimes, AddUpToTheStepsExposedTime) {
  const core::Random random(7, 0);
  for (std::uint64_t i = 0; i < 200; ++i) {
    std::vector<CallRecord> calls;
    for (std::uint64_t c = 0; c < 5; ++c) {
      const double begin = 104 + 12 * random.uniform(20 * i + 2 * c);
      calls.push_back(call(begin, begin, begin + 6 * random.uniform(20 * i + 2 * c + 1)));
    }
    const StepRecord r = step(calls);
    double sum = 0;
    for (const double e : dataparallel::exposed_by_call(r)) sum += e;
    EXPECT_NEAR(sum, dataparallel::decompose(r, {}).exposed, 1e-9);
  }
}

TEST(BucketTimes, AreMediansOverTheStepsThatHaveOneCallForEachBucket) {
  BucketSamples samples(tensors(), 1'200'080, 0);
  EXPECT_TRUE(samples.times().empty());
  samples.add(step({call(105, 106, 107), call(1, 2, 3)}));
  EXPECT_TRUE(samples.times().empty()) << "one bucket, two calls";
  for (const double late : {0.0, 1.0, 5.0}) samples.add(step({call(111 + late, 112 + late, 115 + late)}));
  const auto times = samples.times();
  ASSERT_EQ(times.size(), 1U);
  EXPECT_EQ(times[0].first, "fc8");
  EXPECT_EQ(times[0].last, "conv");
  EXPECT_EQ(times[0].tensors, 4U);
  EXPECT_EQ(times[0].largest, "fc7");
  EXPECT_NEAR(times[0].largest_share, 0.75, 1e-3);
  EXPECT_DOUBLE_EQ(times[0].ready, 12);
  EXPECT_DOUBLE_EQ(times[0].begin, 13);
  EXPECT_DOUBLE_EQ(times[0].end, 16);
  EXPECT_DOUBLE_EQ(times[0].exposed, 3);
}

TEST(BucketTimes, HaveTheBucketsOfTheExchange) {
  const BucketSamples none(tensors(), 1'200'080, std::size_t{2} << 20);
  BucketSamples samples(tensors(), 1'200'080, std::size_t{2} << 20);
  const std::size_t buckets = dataparallel::make_buckets(tensors(), 1'200'080, std::size_t{2} << 20).size();
  EXPECT_GT(buckets, 1U);
  samples.add(step(std::vector(buckets, call(105, 106, 107))));
  EXPECT_EQ(samples.times().size(), buckets);
}

}  // namespace
}  // namespace gradmeter::bench
