// SPDX-License-Identifier: Apache-2.0
#include "model/data/dataset.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "core/error.hpp"

namespace gradmeter::model {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using Indices = std::vector<std::uint64_t>;

/// 256 images of 3 pixels: byte b of image i is i, 255 - i, 0.
class Ramp final : public ImageDataset {
 public:
  Ramp() {
    for (int i = 0; i < 256; ++i)
      for (int byte : {i, 255 - i, 0}) pixels_.push_back(static_cast<std::uint8_t>(byte));
  }
  const std::string& name() const override { return name_; }
  std::size_t size() const override { return 256; }
  std::size_t features() const override { return 3; }
  std::size_t classes() const override { return 10; }
  std::span<const std::uint8_t> image(std::size_t i) const override { return std::span(pixels_).subspan(3 * i, 3); }
  std::int32_t label(std::size_t i) const override { return static_cast<std::int32_t>(i % 10); }

 private:
  std::string name_ = "ramp";
  std::vector<std::uint8_t> pixels_;
};

TEST(Gather, EveryByteIsScaledAndCentredInTheOrderAskedFor) {
  Indices order(256);
  std::iota(order.rbegin(), order.rend(), 0);
  std::vector<float> inputs(3 * 256);
  std::vector<std::int32_t> labels(256);
  gather(Ramp{}, order, inputs, labels);
  for (std::size_t k = 0; k < 256; ++k) {
    const auto i = static_cast<int>(255 - k);
    EXPECT_EQ(labels[k], i % 10);
    EXPECT_FLOAT_EQ(inputs[3 * k], static_cast<float>((i / 255.0 - 0.1307) / 0.3081));
    EXPECT_FLOAT_EQ(inputs[3 * k + 1], static_cast<float>(((255 - i) / 255.0 - 0.1307) / 0.3081));
    EXPECT_FLOAT_EQ(inputs[3 * k + 2], -0.42421296f);
  }
}

TEST(Gather, NothingAskedForIsNothingDone) { gather(Ramp{}, {}, {}, {}); }

Indices batch(const Sampler& sampler, std::size_t step, std::size_t parts, std::size_t size) {
  Indices all;
  for (std::size_t part = 0; part < parts; ++part) {
    Indices mine(size / parts);
    sampler.indices(step, part, mine);
    all.insert(all.end(), mine.begin(), mine.end());
  }
  return all;
}

TEST(Sampler, PartsInOrderMakeTheGlobalBatchForAnyNumberOfRanks) {
  const Sampler sampler(1003, 96, 5);
  for (std::size_t step : {0, 3, 9, 10, 57}) {
    const Indices whole = batch(sampler, step, 1, 96);
    for (std::size_t ranks : {2, 3, 4, 8, 96}) EXPECT_EQ(batch(sampler, step, ranks, 96), whole) << ranks;
  }
}

TEST(Sampler, AnEpochVisitsNoSampleTwiceAndDropsTheLastIncompleteBatch) {
  const Sampler sampler(1003, 96, 5);
  ASSERT_EQ(sampler.steps_per_epoch(), 10u);
  for (std::size_t epoch : {0, 1, 7}) {
    std::set<std::uint64_t> seen;
    for (std::size_t step = 0; step < 10; ++step)
      for (std::uint64_t i : batch(sampler, epoch * 10 + step, 4, 96)) seen.insert(i);
    EXPECT_EQ(seen.size(), 960u);
    EXPECT_LT(*seen.rbegin(), 1003u);
  }
}

TEST(Sampler, EpochsAndSeedsAreShuffledApart) {
  const Indices first = batch(Sampler(1000, 1000, 5), 0, 1, 1000);
  EXPECT_FALSE(std::ranges::is_sorted(first));
  EXPECT_NE(batch(Sampler(1000, 1000, 5), 1, 1, 1000), first);
  EXPECT_NE(batch(Sampler(1000, 1000, 6), 0, 1, 1000), first);
  EXPECT_EQ(batch(Sampler(1000, 1000, 5), 0, 1, 1000), first);
}

TEST(Sampler, OneSampleAndAWholeSetAreBatchesToo) {
  EXPECT_EQ(Sampler(7, 1, 1).steps_per_epoch(), 7u);
  EXPECT_EQ(Sampler(7, 7, 1).steps_per_epoch(), 1u);
  EXPECT_EQ(batch(Sampler(1, 1, 1), 4, 1, 1), Indices{0});
}

TEST(Sampler, ABatchThatTheDataCannotFillIsRefusedInOneLine) {
  try {
    Sampler(100, 128, 1);
    FAIL() << "a batch of 128 was taken from 100 samples";
  } catch (const core::UsageError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("128"), HasSubstr("100"), Not(HasSubstr("\n"))));
  }
  EXPECT_THROW(Sampler(100, 0, 1), core::UsageError);
  EXPECT_THROW(Sampler(0, 1, 1), core::UsageError);
}

}  // namespace
}  // namespace gradmeter::model
