// SPDX-License-Identifier: Apache-2.0
// The identities of the bucketed codecs other than QSGD, and of the draws.
#include "compression/detail/bucketed.hpp"

#include <array>
#include <bit>
#include <cstring>

#include "compression/support.hpp"
#include "core/format.hpp"

namespace gradmeter::compression {
namespace {

constexpr std::size_t ragged = 9 * 512 + 77;

TEST(OneRandomBit, ErrorIsTheBucketsSizeTimesItsSquaredMaximumLessTheSquares) {
  const auto x = gaussians(ragged);
  Moments m{{x.begin(), x.end()}, {}};
  double expected = 0, sum = 0;
  each_bucket(x, 512, [&](std::span<const float> part) {
    const double norm = largest(part);
    expected += static_cast<double>(part.size()) * norm * norm - length(part) * length(part);
    for (const float v : part) m.variance.push_back((norm - double{v}) * (norm + double{v}));
  });
  for (const double v : m.variance) sum += v;
  EXPECT_NEAR(sum, expected, 1e-9 * expected);
  expect_moments(*codec("qsgd1"), x, m, 4000);
}

/// Between neighbouring levels l <= |x| <= h: unbiased, with (|x| - l)(h - |x|). `lowest` is the first above zero.
double between_powers(double size, double unit, double lowest) {
  if (size == 0) return 0;
  const double share = size / unit, low = share < lowest ? 0 : std::exp2(std::floor(std::log2(share)));
  const double high = low == 0 ? lowest : 2 * low;
  return unit * unit * (share - low) * (high - share);
}

TEST(Natural, ErrorIsThatOfNeighbouringPowersAndAtMostAnEighth) {
  auto x = gaussians(ragged);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] *= std::exp2(-static_cast<float>(i % 40));
  Moments m{{x.begin(), x.end()}, {}};
  double error = 0;
  for (const float v : x) {
    m.variance.push_back(between_powers(std::fabs(double{v}), 1, 1e-30));
    error += m.variance.back();
  }
  EXPECT_LE(error, length(x) * length(x) / 8);
  expect_moments(*codec("natural8"), x, m, 1000);
}

TEST(Natural, PowersOfTwoAreKept) {
  std::vector<float> x;
  for (int e = -120; e < 6; ++e) x.push_back(e % 2 ? std::exp2(static_cast<float>(e)) : -std::exp2(float(e)));
  EXPECT_EQ(passed(*codec("natural8"), x), x);
}

TEST(Natural, BelowTheLowestPowerIsChanceBetweenItAndZero) {
  // With a maximum of 2^20 the lowest is 2^-106.
  std::vector<float> x(4096, 0x1.8p-108F);
  for (std::size_t i = 0; i < x.size(); i += 512) x[i] = 0x1p20F;
  std::vector<double> shares;
  for (std::uint64_t step = 0; step < 200; ++step) {
    double share = 0;
    for (const float v : passed(*codec("natural8"), x, {.step = step})) {
      ASSERT_TRUE(v == 0 || v == 0x1p-106F || v == 0x1p20F) << v;
      share += v == 0x1p-106F ? 1 : 0;
    }
    shares.push_back(share);
  }
  expect_mean(shares, (4096 - 8) * 0.375);
}

TEST(Natural, ReservesOneExponentForABucketThatIsNotFinite) {
  auto x = gaussians(1024);
  x[600] = std::numeric_limits<float>::quiet_NaN();
  const Bytes wire = encoded(*codec("natural8"), x);
  std::int16_t exponents[2];
  std::memcpy(exponents, wire.data(), sizeof(exponents));
  EXPECT_EQ(exponents[0], static_cast<int>(std::ceil(std::log2(largest(std::span(x).first(512))))));
  EXPECT_EQ(exponents[1], -32768);
  const auto q = decoded(*codec("natural8"), wire, x.size());
  EXPECT_TRUE(std::isfinite(q[511]) && std::isnan(q[512]) && std::isnan(q[1023]));
}

TEST(FourBitLogarithm, ErrorIsThatOfItsNeighbouringLevels) {
  const auto x = gaussians(ragged);
  Moments m{{x.begin(), x.end()}, {}};
  each_bucket(x, 512, [&](std::span<const float> part) {
    for (const float v : part) m.variance.push_back(between_powers(std::fabs(double{v}), largest(part), 0x1p-6));
  });
  expect_moments(*codec("lns4"), x, m, 1000);
}

TEST(FourBitLogarithm, ItsLevelsAreKept) {
  std::vector<float> x{3.0F, -1.5F, 0.75F, -0.375F, 0.1875F, 0.09375F, -0.046875F, 0.0F};
  EXPECT_EQ(passed(*codec("lns4"), x), x);
}

TEST(Fp8, RelativeErrorIsHalfAnUlpOfTheScaledNumbers) {
  struct Format {
    const char* name;
    double largest, lowest, error;
  };
  for (const Format f : {Format{"fp8-e4m3", 448, 0x1p-6, 0x1p-4}, Format{"fp8-e5m2", 57344, 0x1p-14, 0x1p-3}}) {
    for (const float sigma : {1e-30F, 0.01F, 1e30F}) {
      const auto x = gaussians(ragged, sigma);
      const auto q = passed(*codec(f.name), x);
      double worst = 0;
      for (std::size_t i = 0; i < x.size(); ++i) {
        const std::size_t from = i / 512 * 512;
        const double norm = largest(std::span(x).subspan(from, std::min<std::size_t>(512, x.size() - from)));
        const double size = std::fabs(double{x[i]}), off = std::fabs(double{q[i]} - double{x[i]});
        const double lowest = f.lowest * norm / f.largest;
        ASSERT_LE(off, f.error * std::max(size, lowest) * (1 + 1e-5)) << f.name << ' ' << x[i];
        if (size >= lowest) worst = std::max(worst, off / size);
      }
      EXPECT_GT(worst, 0.8 * f.error) << f.name;  // the bound is reached: no bits are wasted
    }
  }
}

TEST(Fp8, TheLargestOfABucketHasTheFormatsLargestCode) {
  std::vector<float> x{0.3F, -0.1F, 0.02F};
  EXPECT_EQ(encoded(*codec("fp8-e4m3"), x)[16], std::byte{0x7e});
  EXPECT_EQ(encoded(*codec("fp8-e5m2"), x)[16], std::byte{0x7b});
  EXPECT_EQ(passed(*codec("fp8-e4m3"), x)[0], 0.3F);
}

TEST(Casts, RelativeErrorIsHalfAnUlp) {
  struct Format {
    const char* name;
    double error;
  };
  for (const Format f : {Format{"fp16", 0x1p-11}, Format{"bf16", 0x1p-8}}) {
    const auto x = gaussians(ragged, 1.0F);
    const auto q = passed(*codec(f.name), x);
    double worst = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double size = std::fabs(double{x[i]}), off = std::fabs(double{q[i]} - double{x[i]});
      if (size < 0x1p-14) continue;
      ASSERT_LE(off, f.error * size) << f.name;
      worst = std::max(worst, off / size);
    }
    EXPECT_GT(worst, 0.8 * f.error) << f.name;
  }
}

TEST(Factors, OfFp32DivisionAreThoseOfFp64RoundedOnce) {
  std::uint64_t state = 1;
  for (const float top : {127 * 0x1p24f, 7 * 0x1p24f, 0x1p24f, 0x1p23f, 448.0f, 57344.0f, 1.0f}) {
    for (int i = 0; i < 100'000; ++i) {
      const auto bits = static_cast<std::uint32_t>((state = detail::hash64(state)) % 0x7f800000);
      const float norm = i < 1000 ? std::bit_cast<float>(static_cast<std::uint32_t>(i + 1))
                                  : std::bit_cast<float>(std::max(bits, std::uint32_t{1}));
      const detail::Coefficients c = detail::factors_to(top, norm);
      ASSERT_EQ(c.second, static_cast<float>(double{top} / (double{norm} * c.first))) << top << " / " << norm;
    }
  }
}

TEST(WireSizes, AreExactAtLengthsWhereFloatsAndDivisionsGoWrong) {
  struct Width {
    const char* name;
    std::size_t bits, scale;
  };
  for (const Width w : {Width{"qsgd8", 8, 4}, Width{"qsgd4", 4, 4}, Width{"qsgd2", 2, 4}, Width{"qsgd1", 1, 4},
                        Width{"fp8-e4m3", 8, 4}, Width{"fp8-e5m2", 8, 4}, Width{"natural8", 8, 2}, Width{"lns4", 4, 4},
                        Width{"fp16", 16, 0}, Width{"bf16", 16, 0}}) {
    for (const std::size_t n : {std::size_t{0}, std::size_t{1}, std::size_t{511}, std::size_t{512}, std::size_t{513},
                                (std::size_t{1} << 24) + 1, (std::size_t{1} << 40) + 1}) {
      const std::size_t buckets = (n + 511) / 512;
      EXPECT_EQ(codec(w.name)->wire_bytes(n), padded(buckets * w.scale) + padded((n * w.bits + 7) / 8)) << w.name << n;
    }
  }
  EXPECT_EQ(codec("terngrad")->wire_bytes((std::size_t{1} << 24) + 1), 16 + padded((std::size_t{1} << 22) + 1));
}

/// Of pairs of uniforms: 12·covariance, which has mean 0 and error 1/sqrt(n) where they are independent.
double correlation(const std::function<std::uint32_t(std::uint64_t)>& a,
                   const std::function<std::uint32_t(std::uint64_t)>& b, std::uint64_t n) {
  double sum = 0;
  for (std::uint64_t i = 0; i < n; ++i) sum += (a(i) * 0x1p-24 - 0.5) * (b(i) * 0x1p-24 - 0.5);
  return 12 * sum / static_cast<double>(n);
}

TEST(Draws, AreUniformInEveryByte) {
  constexpr std::uint64_t n = 1 << 18;
  for (std::uint64_t key = 0; key < 8; ++key) {
    const detail::Draws draws({.seed = key, .first = key << 31});
    for (int shift = 0; shift < 24; shift += 8) {
      std::array<double, 256> count{};
      for (std::uint64_t i = 0; i < n; ++i) count[draws.draw(i) >> shift & 0xff] += 1;
      double chi = 0;
      for (const double c : count) chi += (c - n / 256.0) * (c - n / 256.0) / (n / 256.0);
      EXPECT_NEAR(chi, 255, 5 * std::sqrt(2 * 255.0)) << key << ' ' << shift;
    }
  }
}

TEST(Draws, OfNeighboursRanksStepsAndHighWordsAreNotCorrelated) {
  constexpr std::uint64_t n = 1 << 18;
  const double limit = 5 / std::sqrt(static_cast<double>(n));
  const RandomDraw draw{.seed = 1, .step = 1, .rank = 1};
  const detail::Draws base(draw);
  const auto of = [](detail::Draws d, std::uint64_t by = 0) {
    return [d, by](std::uint64_t i) { return d.draw(i + by); };
  };
  for (const std::uint64_t lag : {1u, 2u, 3u, 4u, 7u, 8u, 16u, 32u, 64u, 512u, 65536u}) {
    EXPECT_NEAR(correlation(of(base), of(base, lag), n), 0, limit) << "lag " << lag;
  }
  for (RandomDraw other :
       {RandomDraw{1, 2, 0, 1}, RandomDraw{1, 1, 0, 2}, RandomDraw{1, 1, 1, 1}, RandomDraw{1, 1, 0, 1, 1},
        RandomDraw{2, 1, 0, 1}, RandomDraw{1, 1, 0, 1, 0, std::uint64_t{1} << 32}}) {
    for (const std::uint64_t lag : {0u, 1u, 16u}) {
      EXPECT_NEAR(correlation(of(base), of(detail::Draws(other), lag), n), 0, limit) << lag;
    }
  }
}

TEST(Draws, BeyondTwoToThe32AreOthersAndContinueAcrossTheBoundary) {
  const RandomDraw near{.seed = 6}, far{.seed = 6, .first = std::uint64_t{1} << 32};
  const auto x = gaussians(512);
  EXPECT_NE(encoded(*codec("qsgd4"), x, near), encoded(*codec("qsgd4"), x, far));
  const detail::Draws across({.seed = 6, .first = (std::uint64_t{1} << 32) - 5}), beyond(far);
  EXPECT_EQ(across.draw(5), beyond.draw(0));
  EXPECT_TRUE(across.crosses(0, 6));
  EXPECT_FALSE(across.crosses(0, 5));
}

}  // namespace
}  // namespace gradmeter::compression
