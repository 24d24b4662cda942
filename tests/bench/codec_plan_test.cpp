// SPDX-License-Identifier: Apache-2.0
#include "bench/codecs/codecs.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "bench/codecs/measure.hpp"
#include "core/error.hpp"

namespace gradmeter::bench {
namespace {

using core::Factor;
using core::Metric;

GradientSourcePtr gradient(const char* name) { return std::make_shared<compression::GradientSource>(name); }

CodecFactors two_by_two() {
  CodecFactors f;
  f.codecs = {compression::find_codec("bf16"), compression::find_codec("fp16")};
  f.sizes = {1024, 4096};
  f.distributions = {gradient("gaussian"), gradient("sparse")};
  return f;
}

TEST(CodecPlan, HasEveryPointOnceWithItsFactors) {
  auto f = two_by_two();
  f.codecs.push_back(compression::find_codec("bf16:min=1024"));  // bf16 as it is
  const auto points = plan_codecs(f);
  ASSERT_EQ(points.size(), 8u);
  EXPECT_EQ(core::to_text(points[0].factors[Factor::codec]), compression::find_codec("bf16")->name);
  EXPECT_EQ(core::to_text(points[2].factors[Factor::distribution]), "sparse:density=0.05");
  EXPECT_EQ(core::to_text(points[7].factors[Factor::size_bytes]), "4096");
  EXPECT_EQ(core::to_text(points[7].factors[Factor::problem]), "parts=4,ranks=8,baseline=fp32");
  EXPECT_TRUE(core::is_null(points[0].factors[Factor::ranks])) << "nothing is exchanged";
  EXPECT_EQ(points[7].elements(), 1024u);
}

TEST(CodecPlan, KeepsPointsOfOneGradientTogether) {
  const auto points = plan_codecs(two_by_two());
  for (std::size_t i = 0; i < points.size(); i += 2) {
    EXPECT_EQ(points[i].distribution, points[i + 1].distribution);
    EXPECT_EQ(points[i].size_bytes, points[i + 1].size_bytes);
  }
}

TEST(CodecPlan, RefusesSizesThatAreNoFloats) {
  for (const std::size_t bad : {0u, 3u, 1026u}) {
    auto f = two_by_two();
    f.sizes = {bad};
    EXPECT_THROW(plan_codecs(f), core::UsageError) << bad;
  }
}

TEST(CodecPlan, ACodecThatCannotEncodeSoManyElementsIsUnsupportedAlone) {
  auto f = two_by_two();
  f.codecs = {compression::find_codec("qsgd8"), compression::find_codec("topk"), compression::find_codec("randomk")};
  f.sizes = {std::size_t{20} << 30};
  f.distributions.resize(1);
  const auto points = plan_codecs(f);
  ASSERT_EQ(points.size(), 3u);
  EXPECT_EQ(points[0].unsupported, "");
  EXPECT_NE(points[1].unsupported, "");
  EXPECT_EQ(points[1].unsupported.find('\n'), std::string::npos);
}

TEST(CodecPlan, HasOneSizeInTheCachesAndOneBeyond) {
  EXPECT_EQ(usual_codec_sizes(std::size_t{32} << 20), (std::vector<std::size_t>{256 << 10, 64 << 20}));
  EXPECT_EQ(usual_codec_sizes(std::size_t{100} << 20)[1], std::size_t{256} << 20);
  EXPECT_EQ(usual_codec_sizes(0)[1], std::size_t{64} << 20) << "a cache that is not known";
}

class CodecRow : public testing::Test {
 protected:
  CodecRow() : factors_(two_by_two()), points_(plan_codecs(factors_)) {
    findings_.wire_bytes = 512;
    findings_.error = {.squared_error = 2, .squared_norm = 100, .draws = 4, .expected = {}};
    for (auto& t : findings_.times) t = {.median = 1e-6, .n = 10};
  }
  CodecFactors factors_;
  std::vector<CodecPoint> points_;
  CodecFindings findings_{
      .point = points_[0], .codec = *points_[0].codec->codec, .error = {}, .encode_times = {}, .noise = {}};
  core::Point row_;
};

TEST_F(CodecRow, HoldsTheErrorBesideWhatItMustBe) {
  findings_.error.expected = {2.1, 0.1, false};
  fill_codec_check(findings_, row_);
  EXPECT_EQ(row_.status, core::Status::ok);
  EXPECT_DOUBLE_EQ(row_.metrics.number(Metric::error), 0.02);
  EXPECT_DOUBLE_EQ(row_.metrics.number(Metric::error_expected), 0.021);
  EXPECT_TRUE(core::is_null(row_.metrics[Metric::error_bound]));
  EXPECT_DOUBLE_EQ(row_.metrics.number(Metric::wire_bits), 16);
}

TEST_F(CodecRow, HasNoErrorWhereItIsNotANumber) {
  for (const double bad : {std::nan(""), double{INFINITY}}) {
    findings_.error.squared_error = bad;
    fill_codec_check(findings_, row_);
    EXPECT_TRUE(std::isnan(row_.metrics.number(Metric::error))) << bad;
    findings_.error = {.squared_error = 0, .squared_norm = bad, .draws = 1, .expected = {}};
    fill_codec_check(findings_, row_);
    EXPECT_TRUE(std::isnan(row_.metrics.number(Metric::error))) << bad;
  }
}

TEST_F(CodecRow, IsWrongWhereTheErrorIsNotWhatItMustBe) {
  findings_.error.expected = {3, 0.1, false};
  fill_codec_check(findings_, row_);
  EXPECT_EQ(row_.status, core::Status::wrong);
  EXPECT_NE(row_.reason.find("0.02 where 0.03"), std::string::npos) << row_.reason;
  core::Point bounded;
  findings_.error.expected = {3, 0, true};
  fill_codec_check(findings_, bounded);
  EXPECT_EQ(bounded.status, core::Status::ok);
  EXPECT_DOUBLE_EQ(bounded.metrics.number(Metric::error_bound), 0.03);
}

TEST_F(CodecRow, IsWrongWhereTheWireIsNotAsDeclaredOrTheSumNotAsDecoded) {
  findings_.error.fault = "decode_add is not decode and a sum";
  fill_codec_check(findings_, row_);
  EXPECT_EQ(row_.reason, "decode_add is not decode and a sum");
  core::Point other;
  findings_.wire_bytes = 500;
  fill_codec_check(findings_, other);
  EXPECT_EQ(other.status, core::Status::wrong);
  EXPECT_NE(other.reason.find("500 bytes"), std::string::npos) << other.reason;
}

TEST_F(CodecRow, PaysBelowTheLinkOfTheFormula) {
  factors_.baseline = WireBaseline::fp32;
  const std::vector<double> times{1, 2};
  findings_.encode_times = times;
  fill_codec_times(findings_, factors_, row_);
  // All calls take 1 us for 1024 bytes; 8 ranks; half of the bits are saved.
  const double v = 1024e6 / (1.125 + 0.875 + 1);
  EXPECT_NEAR(row_.metrics.number(Metric::crossover_bytes_per_s), 2 * 0.875 * 0.5 * v, 1);
  EXPECT_EQ(row_.raw_times_s, times);
  for (const Metric m : {Metric::memcpy_s, Metric::add_s, Metric::encode_s, Metric::decode_s, Metric::decode_add_s,
                         Metric::reduce_encode_s}) {
    EXPECT_EQ(row_.metrics.number(m), 1e-6) << core::name(m);
  }
}

}  // namespace
}  // namespace gradmeter::bench
