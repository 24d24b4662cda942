// SPDX-License-Identifier: Apache-2.0
#include "bench/allreduce/row.hpp"

#include <gtest/gtest.h>

#include <array>

#include "bench/allreduce/measure.hpp"

namespace gradmeter::bench {
namespace {

using core::Metric;
using core::Status;

CollectivePoint point() {
  CollectivePoint p;
  p.collective = &collectives().front();
  p.algorithm = allreduce::find_algorithm("ring");
  p.count = 250'000;
  p.op = allreduce::Op::sum;
  return p;
}

constexpr std::array three_times{0.9e-3, 1e-3, 1.1e-3};

CollectiveMeasurement findings(const CollectivePoint& p) {
  return {.point = p,
          .times =
              [] {
                core::Blocks blocks;
                blocks.add(three_times);
                return blocks;
              }(),
          .stop = core::Stop::interval,
          .warmup_s = 0.1,
          .warmup_iterations = 5,
          .check = CheckOfAllRanks{},
          .sent = SentBytes{.most_by_one_rank = 10, .total = 20, .between_nodes = 0, .required = 20, .right = true},
          .overlap = {},
          .noise = {},
          .oversubscribed = false,
          .implementation = "test"};
}

TEST(CollectiveRow, BandwidthComesFromTheMedian) {
  const auto p = point();
  core::Point row;
  fill_collective_row(findings(p), 4, row);
  EXPECT_EQ(row.status, Status::ok);
  EXPECT_DOUBLE_EQ(row.metrics.number(Metric::algbw_bytes_per_s), 1e9);
  EXPECT_DOUBLE_EQ(row.metrics.number(Metric::busbw_bytes_per_s), 1.5e9);
  EXPECT_EQ(row.raw_times_s.size(), 3u);
}

core::Summary time_of_blocks(const std::vector<double>& block) {
  const auto p = point();
  auto f = findings(p);
  f.times = {};
  for (int b = 0; b < 8; ++b) f.times.add(block);
  core::Point row;
  fill_collective_row(f, 4, row);
  return *row.metrics[Metric::time_s].as<core::Summary>();
}

// 450, 460 and 470 ns, of which readings are rounded to 1 ns.
TEST(CollectiveRow, AShortCallIsKnownNoBetterThanToAStepOfTheClock) {
  const auto time = time_of_blocks({450e-9, 460e-9, 461e-9, 460e-9, 460e-9, 460e-9, 471e-9, 490e-9});
  EXPECT_EQ(time.median, 460e-9);
  EXPECT_DOUBLE_EQ(time.ci95_low, 448.5e-9);
  EXPECT_DOUBLE_EQ(time.ci95_high, 472.5e-9);
  // Steps of 10.2 ns: medians that are two of them apart may both have been read of 590.7 ns.
  const auto below = time_of_blocks({571e-9, 581e-9, 581e-9, 581e-9, 590e-9}),
             above = time_of_blocks({592e-9, 601e-9, 601e-9, 601e-9, 611e-9});
  EXPECT_GE(below.ci95_high, above.ci95_low);
}

TEST(CollectiveRow, WrongElementsBitsAndBytesMakeItWrong) {
  const auto p = point();
  auto elements = findings(p), bits = findings(p), bytes = findings(p);
  elements.check->wrong = 2;
  bits.check->same_bits = false;
  bytes.sent->right = false;
  for (const auto* f : {&elements, &bits, &bytes}) {
    core::Point row;
    fill_collective_row(*f, 4, row);
    EXPECT_EQ(row.status, Status::wrong);
    EXPECT_EQ(row.metrics.number(Metric::wrong), f == &elements ? 2 : 0);
  }
}

TEST(CollectiveRow, WhatWasNotCheckedHasNoCountOfWrongElements) {
  const auto p = point();
  auto f = findings(p);
  f.check.reset();
  core::Point row;
  fill_collective_row(f, 4, row);
  EXPECT_TRUE(core::is_null(row.metrics[Metric::wrong]));
}

TEST(CollectiveRow, OverlapIsWhatTheExchangeDidNotAdd) {
  const auto p = point();
  auto f = findings(p);
  f.overlap = OverlapTimes{.exchange_s = 0.6e-3, .compute_s = 0.7e-3};
  core::Point row;
  fill_collective_row(f, 2, row);
  EXPECT_NEAR(row.metrics.number(Metric::exposed_s), 0.3e-3, 1e-12);
  EXPECT_NEAR(row.metrics.number(Metric::overlap_s), 0.3e-3, 1e-12);
}

TEST(CollectiveRow, ATimeBelowItsLimitBeyondBothIntervalsIsMistrusted) {
  const auto p = point();
  constexpr std::array many{0.9e-3, 0.95e-3, 0.98e-3, 1e-3, 1.02e-3, 1.05e-3, 1.1e-3};
  auto f = findings(p);
  f.times = {};
  for (const double& t : many) f.times.add({&t, 1});
  for (const auto& [low, status] : {std::pair{1.2e-3, Status::mistrusted}, {1.05e-3, Status::ok}, {0.0, Status::ok}}) {
    core::Point row;
    fill_collective_row(f, 4, row);
    fill_collective_limit({.seconds = 1.3e-3, .low = low, .name = "write", .link = {}}, row);
    EXPECT_EQ(row.status, status) << low;
    EXPECT_DOUBLE_EQ(row.metrics.number(Metric::limit_s), 1.3e-3);
    EXPECT_EQ(row.reason.find("write") != std::string::npos, status == Status::mistrusted) << row.reason;
  }
}

TEST(CollectiveRow, WithoutAnIntervalItIsMistrustedWhereAllSamplesAreBelowTheLimit) {
  const auto p = point();
  auto f = findings(p);
  for (const auto& [low, status] : {std::pair{1.2e-3, Status::mistrusted}, {1.05e-3, Status::ok}}) {
    f.times = {};
    for (const double& t : three_times) f.times.add({&t, 1});
    core::Point row;
    fill_collective_row(f, 4, row);
    fill_collective_limit({.seconds = 1.3e-3, .low = low, .name = "write", .link = {}}, row);
    EXPECT_EQ(row.status, status) << low;
  }
}

TEST(CodingTimes, AreMediansOverBlocksOfTimedCalls) {
  CodingTimes times;
  EXPECT_FALSE(times.of_a_call({}));
  allreduce::CodingTime counters{.encode_s = 100, .decode_s = 100, .calls = 50};  // of calls before the timed ones
  const auto call = [&](double encode_s, std::uint64_t calls) {
    const auto before = counters;
    counters.encode_s += encode_s * static_cast<double>(calls);
    counters.decode_s += 2 * encode_s * static_cast<double>(calls);
    counters.calls += calls;
    return before;
  };
  for (int block = 0; block < 9; ++block) {
    const bool is_disturbed = block == 3;
    times.add(call(is_disturbed ? 1.0 : 1e-3, 4), counters);
    call(5, 1);  // a checked call in the middle of a block is not timed
    times.add(call(is_disturbed ? 1.0 : 1e-3, 6), counters);
    times.end_block();
  }
  const auto found = times.of_a_call({});
  ASSERT_TRUE(found);
  EXPECT_NEAR(found->encode_s, 1e-3, 1e-9);
  EXPECT_NEAR(found->decode_s, 2e-3, 1e-9);
}

TEST(CodingTimes, LeaveOutBlocksOfDisturbedTurns) {
  CodingTimes times;
  allreduce::CodingTime before, after;
  for (int block = 0; block < 14; ++block) {
    before = after;
    after.encode_s += block % 2 == 0 ? 1e-3 : 1;
    after.calls += 1;
    times.add(before, after);
    times.end_block();
  }
  MachineState odd_turns;
  for (std::size_t turn = 1; turn < 14; turn += 2) odd_turns.disturbed.push_back(turn);
  EXPECT_NEAR(times.of_a_call(odd_turns)->encode_s, 1e-3, 1e-9);
}

TEST(OverlapPartTimes, AreOfTheSameTurnsAsTheTimeOfBothAtOnce) {
  OverlapPartTimes parts;
  EXPECT_FALSE(parts.medians({}));
  MachineState odd_turns;
  for (std::size_t turn = 0; turn < 15; ++turn) {
    const double slower = turn % 2 == 0 ? 1 : 3;
    if (slower > 1) odd_turns.disturbed.push_back(turn);
    // A turn in which no iteration began in time has no times.
    parts.add(turn == 4 ? PartTimes{} : PartTimes{{2e-3 * slower, 2e-3 * slower}, {1e-3 * slower, 1e-3 * slower}});
  }
  const auto found = parts.medians(odd_turns);
  ASSERT_TRUE(found);
  EXPECT_NEAR(found->exchange_s, 2e-3, 1e-9);
  EXPECT_NEAR(found->compute_s, 1e-3, 1e-9);
  EXPECT_NEAR(parts.medians({})->exchange_s, 4e-3, 2e-3) << "half of the blocks are slow";
}

}  // namespace
}  // namespace gradmeter::bench
