// SPDX-License-Identifier: Apache-2.0
#include "compression/expected_error.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "compression/registry.hpp"
#include "compression/test_gradients.hpp"

namespace gradmeter::compression {
namespace {

core::ParsedName name(const char* text) { return core::parse_name(text); }

TEST(SquaredError, IsOfTheDifference) {
  const std::vector<float> x{3, 4}, y{3, 5};
  EXPECT_DOUBLE_EQ(squared_norm(x), 25);
  EXPECT_DOUBLE_EQ(squared_error(y, x), 1);
  EXPECT_TRUE(std::isnan(squared_error(std::vector<float>{NAN, 0}, x)));
}

TEST(ExpectedError, IsTheIdentityWorkedByHand) {
  const std::vector<float> x{1, -0.5f, 0.25f, 0};
  EXPECT_DOUBLE_EQ(expected_error(name("qsgd1:bucket=512"), x)->mean, 4 - 1.3125);
  EXPECT_DOUBLE_EQ(expected_error(name("terngrad"), x)->mean, 1.75 - 1.3125);
  EXPECT_DOUBLE_EQ(expected_error(name("qsgd2:bucket=512,norm=max"), x)->mean, 1.75 - 1.3125)
      << "two bits with the largest as norm are TernGrad by the bucket";
  // s = 7: places 7, 3.5, 1.75, 0.
  EXPECT_DOUBLE_EQ(expected_error(name("qsgd4:bucket=512,norm=max"), x)->mean, (0.25 + 0.1875) / 49);
  EXPECT_NEAR(expected_error(name("qsgd4:norm=max,rounding=nearest"), x)->mean, (0.25 + 0.0625) / 49, 1e-15);
  EXPECT_DOUBLE_EQ(expected_error(name("onebit"), x)->mean, 1.3125 - 1.75 * 1.75 / 4);
  EXPECT_DOUBLE_EQ(expected_error(name("onebit:means=2"), x)->mean, 1.3125 - 0.25 - 1.25 * 1.25 / 3);
  EXPECT_DOUBLE_EQ(expected_error(name("topk:density=0.5"), x)->mean, 0.0625);
  EXPECT_DOUBLE_EQ(expected_error(name("natural8"), x)->mean, 0);
  const std::vector<float> clipped{2, 0, 0, 0};  // at one root mean square: 1
  EXPECT_DOUBLE_EQ(expected_error(name("terngrad:clip=1"), clipped)->mean, 1);
  const std::vector<float> y{3, 1};
  EXPECT_DOUBLE_EQ(expected_error(name("natural8"), y)->mean, 1);       // between 2 and 4
  EXPECT_DOUBLE_EQ(expected_error(name("lns4"), y)->mean, 0.25 * 0.5);  // between 0.75 and 1.5
}

TEST(ExpectedError, IsUnknownForOthersAndForWhatIsNotFinite) {
  EXPECT_FALSE(expected_error(name("powersgd"), std::vector<float>{1}));
  EXPECT_FALSE(expected_error(name("qsgd4"), std::vector<float>{1, INFINITY}));
}

TEST(Agreement, AllowsWhatChanceDoesAndNoMore) {
  EXPECT_TRUE(matches_prediction({1, 0.1, false}, 1.5, 1));
  EXPECT_FALSE(matches_prediction({1, 0.1, false}, 1.5, 100));
  EXPECT_FALSE(matches_prediction({1, 0.1, false}, 0.3, 1));
  EXPECT_TRUE(matches_prediction({1, 0, true}, 0.2, 1));
  EXPECT_FALSE(matches_prediction({1, 0, true}, 1.1, 1));
  EXPECT_TRUE(matches_prediction({0, 0, false, 1e-12}, 1e-13, 1));
  EXPECT_FALSE(matches_prediction({0, 0, false, 1e-12}, 1e-11, 1));
}

/// Encodes x a number of times, and compares the error with the prediction.
void expect_prediction(const CodecChoice& choice, std::span<const float> x, std::string_view input) {
  constexpr std::size_t draws = 24;
  const auto expected = expected_error(choice.parsed, x);
  if (!expected) return;
  std::vector<float> decoded(x.size());
  std::vector<std::byte> wire(choice.codec->wire_bytes(x.size()));
  double error = 0;
  for (std::size_t i = 0; i < draws; ++i) {
    const std::size_t bytes = choice.codec->encode(x, wire.data(), {.seed = 9, .step = i});
    choice.codec->decode(std::span(wire).first(bytes), decoded);
    error += squared_error(decoded, x) / draws;
  }
  EXPECT_TRUE(matches_prediction(*expected, error, draws))
      << choice.name << " " << input << ": " << error << " where " << expected->mean << " is expected, ± "
      << expected->deviation / std::sqrt(double(draws)) << " of " << squared_norm(x);
}

/// Every codec that has an identity keeps it, on every distribution, ragged buckets included.
TEST(ExpectedError, IsWhatEachCodecDoes) {
  constexpr std::size_t n = 20011;
  for (const auto& row : codecs()) {
    if (!row.make) continue;
    const auto choice = find_codec(row.name);
    for (const auto* distribution : {"gaussian", "laplace", "sparse"}) {
      std::vector<float> x(n);
      GradientSource(distribution).draw(3, 0, x);
      expect_prediction(*choice, x, distribution);
    }
  }
}

/// Numbers that a codec keeps but for the rounding of fp32, or whose norm is beyond fp32.
TEST(ExpectedError, IsWhatEachCodecDoesWhereItIsNearlyZeroOrTheNormIsCapped) {
  constexpr std::size_t n = 40 * 512;  // whole buckets, each with the largest number
  std::vector<float> whole(n), thirds(n), alike(n), large(n);
  for (std::size_t i = 0; i < n; ++i) {
    const float sign = i % 3 == 1 ? -1.0f : 1.0f;
    whole[i] = sign * static_cast<float>(i % 128);
    thirds[i] = 3 * whole[i];
    alike[i] = 0.1f * sign;
    large[i] = 1e38f * sign;
  }
  for (const auto& row : codecs()) {
    if (!row.make) continue;
    const auto choice = find_codec(row.name);
    expect_prediction(*choice, whole, "whole numbers");
    expect_prediction(*choice, thirds, "threefold whole numbers");
    expect_prediction(*choice, alike, "±0.1");
    expect_prediction(*choice, large, "±1e38");
  }
}

TEST(ExpectedError, OfTopKCountsTheElementsThatAreSent) {
  std::vector<float> x(400);  // 0.07·400 in double is above 28
  double tail = 0;
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i + 1);
  for (double v = 1; v <= 372; ++v) tail += v * v;
  EXPECT_DOUBLE_EQ(expected_error(name("topk:density=0.07"), x)->mean, tail);
}

TEST(ExpectedError, HasNoBoundWhereACastRoundsToInfinity) {
  EXPECT_TRUE(expected_error(name("fp16"), std::vector<float>{1, 65519}));
  EXPECT_FALSE(expected_error(name("fp16"), std::vector<float>{1, -65520}));
  EXPECT_TRUE(expected_error(name("bf16"), std::vector<float>{1, 3.39e38f}));
  EXPECT_FALSE(expected_error(name("bf16"), std::vector<float>{1, 3.4e38f}));
}

}  // namespace
}  // namespace gradmeter::compression
