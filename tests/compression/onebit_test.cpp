// SPDX-License-Identifier: Apache-2.0
#include "compression/codecs/onebit.hpp"

#include "compression/support.hpp"

namespace gradmeter::compression {
namespace {

double error_of(std::string_view name, std::span<const float> x) {
  const auto q = passed(*codec(name), x);
  double sum = 0;
  for (std::size_t i = 0; i < x.size(); ++i) sum += (double{q[i]} - double{x[i]}) * (double{q[i]} - double{x[i]});
  return sum;
}

struct Sums {
  double all = 0, squares = 0, up = 0, down = 0, ups = 0, downs = 0;
};
Sums sums_of(std::span<const float> x) {
  Sums s;
  for (const float v : x) {
    s.all += std::fabs(double{v});
    s.squares += double{v} * double{v};
    (v >= 0 ? s.up : s.down) += double{v};
    (v >= 0 ? s.ups : s.downs) += 1;
  }
  return s;
}

TEST(OneBit, LosesWhatTheMeanMagnitudeDoesNotHold) {
  const auto x = gaussians(5000);  // the last bucket is short
  double expected = 0;
  each_bucket(x, 512, [&](std::span<const float> b) {
    const Sums s = sums_of(b);
    const double delta = s.all * s.all / (static_cast<double>(b.size()) * s.squares);
    expected += (1 - delta) * s.squares;
  });
  EXPECT_NEAR(error_of("onebit", x), expected, 1e-6 * expected);
}

TEST(OneBit, KeepsTwoOverPiOfAGaussian) {
  const auto x = gaussians(1 << 18);
  const Sums s = sums_of(x);
  // Twelve uniforms have E|x| = 0.7970 where a Gaussian has 0.7979: 0.2 % of delta.
  EXPECT_NEAR(1 - error_of("onebit", x) / s.squares, 2 / std::acos(-1.0), 0.01);
}

TEST(OneBit, TwoMeansLoseWhatTheyDoNotHold) {
  auto x = gaussians(5000);
  for (float& v : x) v += 0.01F;  // the signs differ
  double expected = 0;
  each_bucket(x, 512, [&](std::span<const float> b) {
    const Sums s = sums_of(b);
    expected += s.squares - s.up * s.up / s.ups - s.down * s.down / s.downs;
  });
  EXPECT_NEAR(error_of("onebit:means=2", x), expected, 1e-6 * expected);
  EXPECT_LT(expected, 0.95 * error_of("onebit", x));
}

TEST(OneBit, DecodesToTheMeansOfEachSign) {
  const std::vector<float> x{1, 3, -2, 0, -0.0F, -6};
  EXPECT_EQ(passed(*codec("onebit"), x), (std::vector<float>{2, 2, -2, 2, 2, -2}));
  EXPECT_EQ(passed(*codec("onebit:means=2"), x), (std::vector<float>{1, 1, -4, 1, 1, -4}));
  EXPECT_EQ(passed(*codec("onebit:means=2"), std::vector<float>{-3}), (std::vector<float>{-3}));
}

TEST(OneBit, SendsScalesThenBits) {
  std::vector<float> x(600, 2.0F);
  x[1] = x[599] = -2;
  const Bytes wire = encoded(*codec("onebit"), x);
  ASSERT_EQ(wire.size(), 16u + 80u);  // two scales, 75 bytes of bits
  EXPECT_EQ(wire[16], std::byte{0xfd});
  EXPECT_EQ(wire[16 + 74], std::byte{0x7f});
  EXPECT_EQ(wire[16 + 75], std::byte{0});
  EXPECT_EQ(codec("onebit:means=2")->wire_bytes(3 * 512), 32u + 192u);
}

TEST(OneBit, OneBadElementSpoilsItsBucketAlone) {
  auto x = gaussians(1200);
  x[600] = std::numeric_limits<float>::infinity();
  for (const auto* name : {"onebit", "onebit:means=2"}) {
    const auto out = passed(*codec(name), x);
    for (std::size_t i = 0; i < x.size(); ++i) EXPECT_EQ(std::isnan(out[i]), i / 512 == 1) << i;
  }
}

TEST(OneBit, FeedbackLosesNothingForGood) {
  for (const auto* name : {"onebit", "onebit:means=2", "topk", "topk:density=0.1"}) {
    const CodecPtr c = codec(name);
    constexpr std::size_t n = 3000;
    std::vector<float> residual(n), scratch(n);
    std::vector<double> given(n), sent(n);
    Bytes wire(c->wire_bytes(n));
    for (std::uint64_t step = 0; step < 100; ++step) {
      const auto g = gaussians(n, 0.01F, step);
      const std::size_t bytes = encode_with_feedback(*c, g, residual, scratch, wire.data(), {});
      c->decode({wire.data(), bytes}, scratch);
      for (std::size_t i = 0; i < n; ++i) given[i] += double{g[i]}, sent[i] += double{scratch[i]};
    }
    double left = 0, all = 0;
    for (std::size_t i = 0; i < n; ++i) {
      left += std::pow(given[i] - sent[i] - double{residual[i]}, 2);
      all += given[i] * given[i];
    }
    EXPECT_LT(std::sqrt(left / all), 1e-5) << name;
    EXPECT_GT(length(residual), 0.01 * std::sqrt(all)) << name << ": nothing was lost, so nothing is shown";
  }
}

}  // namespace
}  // namespace gradmeter::compression
