// SPDX-License-Identifier: Apache-2.0
#include "compression/codecs/quantized.hpp"

#include <cstring>
#include <numeric>

#include "compression/support.hpp"
#include "core/error.hpp"
#include "core/format.hpp"

namespace gradmeter::compression {
namespace {

double root_mean_square(std::span<const float> x) { return length(x) / std::sqrt(static_cast<double>(x.size())); }

/// With M: a clipped element is always ±M; the others are unbiased with |x|·(M - |x|).
Moments ternary_moments(std::span<const float> x, double scale) {
  Moments m;
  for (const float v : x) {
    const double size = std::min(std::fabs(double{v}), scale);
    m.mean.push_back(std::copysign(size, v));
    m.variance.push_back(size * (scale - size));
  }
  return m;
}

TEST(TernGrad, ErrorIsScaleTimesTheSumOfMagnitudesLessTheSquares) {
  const auto x = gaussians(5001);
  double magnitudes = 0;
  for (const float v : x) magnitudes += std::fabs(double{v});
  const double expected = largest(x) * magnitudes - length(x) * length(x);
  const Moments m = ternary_moments(x, largest(x));
  EXPECT_NEAR(std::accumulate(m.variance.begin(), m.variance.end(), 0.0), expected, 1e-9 * expected);
  expect_moments(*codec("terngrad:clip=0"), x, m, 1000);
}

TEST(TernGrad, AClipAddsTheSquareOfWhatItCutsOff) {
  const auto x = gaussians(5001);
  for (const double clip : {1.0, 2.5}) {
    const Moments m = ternary_moments(x, clip * root_mean_square(x));
    double bias = 0, cut = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      bias += std::pow(m.mean[i] - double{x[i]}, 2);
      cut += std::pow(std::max(0.0, std::fabs(double{x[i]}) - clip * root_mean_square(x)), 2);
    }
    EXPECT_NEAR(bias, cut, 1e-9 * cut);
    EXPECT_GT(cut, 0);
    expect_moments(*codec(fmt::format("terngrad:clip={}", clip)), x, m, 1000);
  }
}

TEST(TernGrad, OneElementKeepsItsValue) {
  for (const float v : {3.0F, -3.0F, std::numeric_limits<float>::denorm_min(), std::numeric_limits<float>::max()}) {
    EXPECT_EQ(passed(*codec("terngrad"), std::vector<float>{v})[0], v);
  }
}

TEST(TernGrad, ATinyElementAmongZerosIsNotLost) {
  std::vector<float> x(100000, 0.0F);
  x[7] = std::numeric_limits<float>::denorm_min();
  EXPECT_EQ(passed(*codec("terngrad"), x), x);
}

TEST(TernGrad, HasTheCodesOfQsgdWithTwoBitsInOneBucket) {
  const auto x = gaussians(512);
  const auto ternary = codec("terngrad:clip=0"), qsgd = codec("qsgd2");
  for (std::uint64_t step = 0; step < 50; ++step) {
    const RandomDraw draw{.seed = 1, .step = step, .first = 512 * step};
    EXPECT_EQ(encoded(*ternary, x, draw), encoded(*qsgd, x, draw));
  }
}

TEST(TernGrad, ScaleAndCodesAreThoseOfThePlainLoops) {
  // So long that the span is read in two places, and that tables of draws serve several upper halves of numbers.
  for (const std::size_t n : {131071u, 131072u, 300001u}) {
    auto x = gaussians(n);
    x[n - 1] = 100;
    const auto c = codec("terngrad");
    on_every_target([&] {
      EXPECT_EQ(ternary_scale(x, 2.5), detail::ternary_scale_plain(x, 2.5)) << n;
      EXPECT_EQ(ternary_scale(x, 1000), 100) << n;
      for (const std::uint64_t first : {std::uint64_t{77}, (std::uint64_t{2} << 32) - 70000}) {
        const RandomDraw draw{.seed = 4, .first = first};
        EXPECT_EQ(encoded(*c, x, draw), encoded(c->reference(), x, draw)) << n;
      }
    });
  }
}

TEST(TernGrad, ItsPartsAreWhatItSends) {
  for (const std::size_t n : {0u, 1u, 63u, 1000u, 70001u}) {
    const auto x = gaussians(n);
    const auto c = codec("terngrad");
    on_every_target([&] {
      // The second crosses a boundary of 2^32.
      for (const std::uint64_t first : {std::uint64_t{77}, (std::uint64_t{2} << 32) - 40}) {
        const RandomDraw draw{.seed = 4, .first = first};
        const float scale = ternary_scale(x, 2.5);
        std::vector<std::int8_t> codes(n, 99);
        ternary_quantise(x, scale, codes, draw);
        std::vector<float> bytes(n), words(n);
        ternary_decode(codes, scale, bytes);
        ternary_decode(std::vector<std::int32_t>(codes.begin(), codes.end()), scale, words);
        const auto sent = passed(*c, x, draw);
        EXPECT_EQ(bytes, sent) << n;
        EXPECT_EQ(words, sent) << n;
      }
    });
  }
}

TEST(TernGrad, SumsOfIntegersAreSumsOfWhatWasDecoded) {
  constexpr std::size_t n = 1000, ranks = 127;
  const float scale = 0.5F;  // a power of two: nothing is rounded
  std::vector<std::int8_t> sum(n), codes(n);
  std::vector<float> expected(n), one(n), out(n);
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    ternary_quantise(gaussians(n, 0.1F, rank), scale, codes, {.rank = rank});
    ternary_decode(codes, scale, one);
    for (std::size_t i = 0; i < n; ++i) sum[i] = static_cast<std::int8_t>(sum[i] + codes[i]), expected[i] += one[i];
  }
  ternary_decode(sum, scale, out);
  EXPECT_EQ(out, expected);
}

TEST(TernGrad, AScaleThatIsNotFiniteOrZeroGivesNoCodes) {
  const auto x = gaussians(100);
  for (const float scale : {0.0F, std::numeric_limits<float>::quiet_NaN()}) {
    std::vector<std::int8_t> codes(100, 99);
    ternary_quantise(x, scale, codes, {});
    EXPECT_EQ(codes, std::vector<std::int8_t>(100, 0));
  }
  auto bad = x;
  bad[50] = std::numeric_limits<float>::infinity();
  EXPECT_TRUE(std::isnan(ternary_scale(bad, 2.5)));
  std::vector<float> out(3);
  ternary_decode(std::vector<std::int8_t>(3), ternary_scale(bad, 0), out);
  EXPECT_TRUE(std::isnan(out[1]));
}

TEST(TernGrad, RefusesClipsThatAreNotNumbersInOneForm) {
  for (const auto* bad : {"clip=-1", "clip=nan", "clip=2.50", "clip=1001", "clip=x", "exchange=ring"}) {
    EXPECT_THROW(find_codec(fmt::format("terngrad:{}", bad)), core::UsageError) << bad;
  }
  EXPECT_NO_THROW(find_codec("terngrad:exchange=sra,clip=0"));
}

TEST(TernGrad, IsExchangedAsItsParameterSays) {
  EXPECT_EQ(find_codec("terngrad")->exchange, Exchange::gather);
  EXPECT_EQ(find_codec("terngrad:exchange=gather")->exchange, Exchange::gather);
  EXPECT_EQ(find_codec("terngrad:exchange=sum")->exchange, Exchange::shared_sum);
  EXPECT_EQ(find_codec("terngrad:exchange=sra")->exchange, Exchange::schedule);
}

}  // namespace
}  // namespace gradmeter::compression
