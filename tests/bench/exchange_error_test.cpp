// SPDX-License-Identifier: Apache-2.0
// The real executor gives the published errors of encoded sums.
#include "bench/codecs/codecs.hpp"

#include <gtest/gtest.h>

#include <set>

namespace gradmeter::bench {
namespace {

using core::Factor;
using core::Metric;
using core::Point;

ExchangeErrorOptions options() {
  ExchangeErrorOptions o;
  for (const auto* name : {"one-shot", "direct", "ring"}) o.algorithms.push_back(allreduce::find_algorithm(name));
  o.ranks = {8};
  o.size_bytes = 256 << 10;
  o.cores = 2;
  return o;
}

std::vector<Point> run(const ExchangeErrorOptions& o) {
  const runtime::SignalWatch signals;
  std::vector<Point> out;
  run_exchange_errors(o, {}, signals,
                      {.measured = [&](const Point& p) { out.push_back(p); }, .kept = {}, .progress = {}});
  return out;
}

TEST(ExchangeError, IsWhatWasPublishedForFourBitsOnEightRanks) {
  auto o = options();
  o.codecs = {compression::find_codec("qsgd4")};
  const auto points = run(o);
  ASSERT_EQ(points.size(), 3u);
  const double published[] = {0.015, 0.051, 0.140};
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(points[i].status, core::Status::ok) << points[i].reason;
    EXPECT_NEAR(points[i].metrics.number(Metric::error) / published[i], 1, 0.15)
        << core::to_text(points[i].factors[Factor::algorithm]);
  }
}

TEST(ExchangeError, SaysWhatCannotBeHad) {
  auto o = options();
  o.codecs = {compression::find_codec("bf16")};
  o.algorithms = {allreduce::find_algorithm("mpi"), allreduce::find_algorithm("recursive-doubling")};
  o.ranks = {4};
  for (const auto& p : run(o)) {
    EXPECT_EQ(p.status, core::Status::unsupported);
    EXPECT_FALSE(p.reason.empty());
    EXPECT_TRUE(core::is_null(p.metrics[Metric::error]));
  }
}

TEST(ExchangeError, SkipsWhatMemoryDoesNotHold) {
  auto o = options();
  o.codecs = {compression::find_codec("bf16")};
  o.memory_bytes = 8 * 256 << 10;
  for (const auto& p : run(o)) {
    EXPECT_EQ(p.status, core::Status::skipped);
    EXPECT_EQ(p.reason, "needs 4 MiB of memory where 2 MiB are free");
  }
}

TEST(ExchangeError, PlansEachPointOnce) {
  auto o = options();
  o.codecs = {compression::find_codec("bf16"), compression::find_codec("bf16:ef=off")};
  o.ranks = {2, 4};
  const auto points = plan_exchange_errors(o);
  EXPECT_EQ(points.size(), 6u);
  std::set<std::string> keys;
  for (const auto& p : points) keys.insert(p.factors.key());
  EXPECT_EQ(keys.size(), 6u);
}

}  // namespace
}  // namespace gradmeter::bench
