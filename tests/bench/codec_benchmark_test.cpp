// SPDX-License-Identifier: Apache-2.0
#include "bench/codecs/measure.hpp"

#include <gtest/gtest.h>

namespace gradmeter::bench {
namespace {

using core::Metric;

/// The row of one check, of a gradient of n normal numbers.
core::Point checked(const char* codec, std::size_t n) {
  CodecFactors f;
  f.codecs = {compression::find_codec(codec)};
  f.sizes = {n * sizeof(float)};
  f.distributions = {std::make_shared<compression::GradientSource>("gaussian")};
  const auto points = plan_codecs(f);
  EXPECT_EQ(points.front().unsupported, "") << codec;
  std::vector<float> x(n);
  points.front().distribution->draw(7, 0, x);
  core::Point row;
  CodecBenchmark benchmark(points.front(), f, x, 7, runtime::host_device());
  EXPECT_TRUE(benchmark.check(row)) << row.reason;
  return row;
}

TEST(CodecBenchmark, CodecsMadeOfCollectivesAreTheStepsOfOneRank) {
  constexpr std::size_t n = 1 << 16;
  const auto top = checked("topk", n), dgc = checked("dgc", n), random = checked("randomk:density=0.25", n),
             thin = checked("powersgd:rank=4", n);
  EXPECT_EQ(dgc.metrics.number(Metric::wire_bits), top.metrics.number(Metric::wire_bits));
  EXPECT_DOUBLE_EQ(dgc.metrics.number(Metric::error), top.metrics.number(Metric::error))
      << "the first step has no momentum yet, and each encoding is a first one";
  EXPECT_DOUBLE_EQ(random.metrics.number(Metric::wire_bits), 8);
  EXPECT_NEAR(random.metrics.number(Metric::error), 0.75, 0.01);
  EXPECT_DOUBLE_EQ(thin.metrics.number(Metric::wire_bits), 32.0 * 4 * (256 + 256) / n);
  EXPECT_GT(thin.metrics.number(Metric::error), 0.9) << "noise has no low rank";
  EXPECT_LT(thin.metrics.number(Metric::error), 1);
}

TEST(CodecBenchmark, ATensorThatWouldNotShrinkHasTheReason) {
  CodecFactors f;
  f.codecs = {compression::find_codec("powersgd:rank=32")};
  f.sizes = {4096};
  f.distributions = {std::make_shared<compression::GradientSource>("gaussian")};
  EXPECT_NE(plan_codecs(f).front().unsupported.find("goes dense"), std::string::npos);
}

}  // namespace
}  // namespace gradmeter::bench
