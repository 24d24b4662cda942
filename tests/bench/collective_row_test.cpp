#include "bench/collective_row.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstring>

#include "bench/collective_call.hpp"

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

constexpr std::array times{0.9e-3, 1e-3, 1.1e-3};

CollectiveFindings findings(const CollectivePoint& p) {
  return {.point = p,
          .times =
              [] {
                core::Blocks blocks;
                blocks.add(times);
                return blocks;
              }(),
          .stop = core::Stop::interval,
          .warmup_s = 0.1,
          .warmup_iterations = 5,
          .check = CheckFinding{},
          .sent = SentBytes{.most = 10, .total = 20, .between_nodes = 0, .due = 20, .right = true},
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

TEST(ConcurrentCopy, MovesTheWholeBufferAlsoInPlace) {
  std::array<char, 9> in{"abcdefgh"}, out{};
  ConcurrentCopy copy;
  const auto* from = reinterpret_cast<const std::byte*>(in.data());
  copy.start({.in = from, .out = reinterpret_cast<std::byte*>(out.data()), .count = 2});
  EXPECT_STREQ(out.data(), "abcdefgh");
  copy.start({.in = from, .out = reinterpret_cast<std::byte*>(in.data()), .count = 2});
  EXPECT_STREQ(in.data(), "abcdabcd");
}

}  // namespace
}  // namespace gradmeter::bench
