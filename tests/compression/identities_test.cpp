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
}

/// Every codec that has an identity keeps it, on every distribution, ragged buckets included.
TEST(ExpectedError, IsWhatEachCodecDoes) {
  constexpr std::size_t n = 20011, draws = 24;
  for (const auto& row : codecs()) {
    if (!row.make) continue;
    const auto choice = find_codec(row.name);
    for (const auto* distribution : {"gaussian", "laplace", "sparse"}) {
      std::vector<float> x(n), decoded(n);
      GradientSource(distribution).draw(3, 0, x);
      const auto expected = expected_error(choice->parsed, x);
      if (!expected) continue;
      std::vector<std::byte> wire(choice->codec->wire_bytes(n));
      double error = 0;
      for (std::size_t i = 0; i < draws; ++i) {
        const std::size_t bytes = choice->codec->encode(x, wire.data(), {.seed = 9, .step = i});
        choice->codec->decode(std::span(wire).first(bytes), decoded);
        error += squared_error(decoded, x) / draws;
      }
      EXPECT_TRUE(matches_prediction(*expected, error, draws))
          << row.name << " " << distribution << ": " << error << " where " << expected->mean << " is expected, ± "
          << expected->deviation / std::sqrt(double(draws));
    }
  }
}

}  // namespace
}  // namespace gradmeter::compression
