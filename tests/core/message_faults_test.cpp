// SPDX-License-Identifier: Apache-2.0
#include "core/injection.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace gradmeter::core {
namespace {

MessageId numbered(std::uint64_t n) { return {.from = 1, .to = 2, .channel = 3, .number = n}; }

TEST(MessageFaults, MessagesAreLostAsOftenAsSaid) {
  const MessageFaults f{.drop = MessageFaults::Drop{.probability = 0.25, .timeout_s = 0.1, .seed = 1}};
  std::vector<int> lost(8);
  for (std::uint64_t n = 0; n < 40'000; ++n) ++lost[static_cast<std::size_t>(std::min(f.drop->losses(numbered(n)), 7))];
  double expected = 40'000 * 0.75;
  for (std::size_t times = 0; times < 4; ++times, expected *= 0.25) {
    EXPECT_NEAR(lost[times], expected, 5 * std::sqrt(expected)) << times;
  }
}

TEST(MessageFaults, EachLossWaitsTwiceAsLongAsTheOneBefore) {
  const MessageFaults f{.drop = MessageFaults::Drop{.probability = 0.5, .timeout_s = 0.1, .seed = 1}};
  for (std::uint64_t n = 0; n < 100; ++n) {
    double waited = 0, timeout = 0.1;
    for (int i = 0; i < f.drop->losses(numbered(n)); ++i, timeout *= 2) waited += timeout;
    EXPECT_DOUBLE_EQ(f.extra_s(numbered(n)), waited);
  }
}

TEST(MessageFaults, DelaysFillTheirRange) {
  const MessageFaults f{.delay = MessageFaults::Delay{.time_s = 2, .jitter_s = 0.5, .seed = 1}};
  double least = 10, most = 0, sum = 0;
  for (std::uint64_t n = 0; n < 1000; ++n) {
    const double d = f.extra_s(numbered(n));
    least = std::min(least, d), most = std::max(most, d), sum += d;
  }
  EXPECT_GE(least, 1.5);
  EXPECT_LT(least, 1.51);
  EXPECT_LE(most, 2.5);
  EXPECT_GT(most, 2.49);
  EXPECT_NEAR(sum / 1000, 2, 0.05);
}

TEST(MessageFaults, DrawsDependOnTheSeedAndThePlaceAlone) {
  const auto delays = [](std::uint64_t seed, MessageId place) {
    const MessageFaults f{.delay = MessageFaults::Delay{.time_s = 1, .jitter_s = 1, .seed = seed}};
    std::vector<double> out;
    for (place.number = 0; place.number < 10; ++place.number) out.push_back(f.extra_s(place));
    return out;
  };
  const auto all = delays(1, {.from = 0, .to = 1, .channel = 0});
  EXPECT_EQ(delays(1, {.from = 0, .to = 1, .channel = 0}), all);
  EXPECT_NE(delays(2, {.from = 0, .to = 1, .channel = 0}), all);
  EXPECT_NE(delays(1, {.from = 1, .to = 0, .channel = 0}), all);
  EXPECT_NE(delays(1, {.from = 0, .to = 1, .channel = 1}), all);
}

TEST(MessageFaults, ACutHoldsBackWhatConcernsItsRankUntilItIsOver) {
  const MessageFaults f{.cut = MessageFaults::Cut{.rank = 2, .at_s = 1, .for_s = 3}};
  const MessageId to{.from = 0, .to = 2}, from{.from = 2, .to = 0}, apart{.from = 0, .to = 1};
  for (const auto& place : {to, from}) {
    EXPECT_EQ(f.delivery_s(place, 0.9), 0.9);
    EXPECT_EQ(f.delivery_s(place, 1), 4);
    EXPECT_EQ(f.delivery_s(place, 3.9), 4);
    EXPECT_EQ(f.delivery_s(place, 4.1), 4.1);
  }
  EXPECT_EQ(f.delivery_s(apart, 2), 2);
  EXPECT_TRUE(std::isinf(MessageFaults{.cut = MessageFaults::Cut{.rank = 2, .at_s = 1}}.delivery_s(to, 2)));
}

}  // namespace
}  // namespace gradmeter::core
