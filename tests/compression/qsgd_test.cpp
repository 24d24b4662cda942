// SPDX-License-Identifier: Apache-2.0
#include "compression/codecs/quantized.hpp"

#include <array>
#include <cstring>

#include "compression/support.hpp"
#include "core/format.hpp"

namespace gradmeter::compression {
namespace {

constexpr std::array<std::size_t, 3> widths{2, 4, 8};
constexpr double levels(std::size_t bits) { return static_cast<double>((1u << (bits - 1)) - 1); }
constexpr std::size_t ragged = 9 * 512 + 77;

/// Unbiased, with (N²/s²)·Σ f(1-f), f = frac(s·|x|/N).
Moments qsgd_moments(std::span<const float> x, std::size_t bucket, std::size_t bits, bool l2) {
  Moments m{{x.begin(), x.end()}, {}};
  each_bucket(x, bucket, [&](std::span<const float> part) {
    const double unit = (l2 ? length(part) : largest(part)) / levels(bits);
    for (const float v : part) {
      const double level = std::fabs(double{v}) / unit, f = level - std::floor(level);
      m.variance.push_back(unit * unit * f * (1 - f));
    }
  });
  return m;
}

TEST(Qsgd, ErrorIsTheFormulasAndTheMeanIsTheInput) {
  const auto x = gaussians(ragged);
  for (const std::size_t bits : widths) {
    for (const std::size_t bucket : {64u, 512u, 8192u}) {
      for (const bool l2 : {false, true}) {
        const auto c = codec(fmt::format("qsgd{}:bucket={},norm={}", bits, bucket, l2 ? "l2" : "max"));
        expect_moments(*c, x, qsgd_moments(x, bucket, bits, l2), bits == 2 && l2 ? 2000 : 400);
      }
    }
  }
}

/// Code i of b bits, sign-extended.
int code_at(const Bytes& wire, std::size_t n, std::size_t bucket, std::size_t bits, std::size_t i) {
  const auto byte = std::to_integer<unsigned>(wire[scale_bytes(n, bucket) + i * bits / 8]);
  const int code = static_cast<int>(byte >> i * bits % 8 & ((1u << bits) - 1));
  return code >> (bits - 1) ? code - (1 << bits) : code;
}

TEST(Qsgd, NearestIsTheDefinition) {
  const auto x = gaussians(ragged);
  for (const std::size_t bits : widths) {
    const auto c = codec(fmt::format("qsgd{}:rounding=nearest", bits));
    const Bytes wire = encoded(*c, x);
    const auto q = decoded(*c, wire, x.size());
    const double s = levels(bits);
    for (std::size_t i = 0; i < x.size(); ++i) {
      const std::size_t from = i / 512 * 512;
      const double norm = largest(std::span(x).subspan(from, std::min<std::size_t>(512, x.size() - from)));
      const double level = s * std::fabs(double{x[i]}) / norm, code = std::min(std::floor(level + 0.5), s);
      if (std::fabs(level - std::floor(level) - 0.5) < 1e-4) continue;  // a float's rounding may decide
      ASSERT_EQ(std::abs(code_at(wire, x.size(), 512, bits, i)), static_cast<int>(code)) << i;
      ASSERT_NEAR(q[i], std::copysign(norm * code / s, x[i]), 1e-6 * norm) << i;
    }
  }
}

TEST(Qsgd, TiesGoAwayFromZeroOnBothSides) {
  std::vector<float> x(64, 0.0F);
  x[0] = 7.0F, x[1] = 2.5F, x[2] = -2.5F, x[3] = -7.0F;
  const Bytes wire = encoded(*codec("qsgd4:bucket=64,rounding=nearest"), x);
  EXPECT_EQ(code_at(wire, 64, 64, 4, 0), 7);
  EXPECT_EQ(code_at(wire, 64, 64, 4, 1), 3);
  EXPECT_EQ(code_at(wire, 64, 64, 4, 2), -3);
  EXPECT_EQ(code_at(wire, 64, 64, 4, 3), -7);
}

TEST(Qsgd, TheLowestCodeNeverAppears) {
  auto x = gaussians(1 << 14);
  for (std::size_t i = 0; i < x.size(); i += 3) x[i] = i % 2 ? -0.1F : 0.1F;  // many at the norm itself
  for (const std::size_t bits : widths) {
    for (const auto* rounding : {"stochastic", "nearest"}) {
      const auto c = codec(fmt::format("qsgd{}:rounding={}", bits, rounding));
      for (std::uint64_t step = 0; step < 10; ++step) {
        const Bytes wire = encoded(*c, x, {.step = step});
        for (std::size_t i = 0; i < x.size(); ++i) {
          ASSERT_GT(code_at(wire, x.size(), 512, bits, i), -(1 << (bits - 1))) << c->name();
        }
      }
    }
  }
}

TEST(Qsgd, TheLargestOfABucketIsKept) {
  const auto x = gaussians(512);
  for (const std::size_t bits : widths) {
    const auto q = passed(*codec(fmt::format("qsgd{}", bits)), x);
    EXPECT_NEAR(largest(q), largest(x), 1e-7 * largest(x));
  }
}

TEST(Qsgd, SubnormalAndHugeBucketsStayUnbiasedAndFinite) {
  constexpr float smallest = std::numeric_limits<float>::denorm_min(), most = std::numeric_limits<float>::max();
  for (const float unit : {smallest, 100 * smallest, 0x1p-126F, 0x1p-100F, 0x1p-61F, 0x1p-59F, most / 128}) {
    std::vector<float> x(512);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = unit * static_cast<float>(static_cast<int>(i % 201) - 100);
    if (unit > 1) x[0] = most;
    for (const std::size_t bits : widths) {
      for (const auto* norm : {"max", "l2"}) {
        const auto c = codec(fmt::format("qsgd{}:norm={}", bits, norm));
        std::vector<double> along;
        for (std::uint64_t step = 0; step < 300; ++step) {
          const auto q = passed(*c, x, {.step = step});
          double sum = 0;
          for (std::size_t i = 0; i < x.size(); ++i) {
            ASSERT_TRUE(std::isfinite(q[i])) << c->name() << ' ' << unit;
            sum += double{q[i]} / double{unit} * (double{x[i]} / double{unit});
          }
          along.push_back(sum);
        }
        // Two subnormals' spacing may be all that a level has: rounding of the decoded numbers is allowed for.
        const double exact = std::pow(length(x) / double{unit}, 2), slack = unit < 0x1p-126F ? 0.02 : 1e-5;
        const Estimate e = estimate(along);
        EXPECT_NEAR(e.mean, exact, 5 * e.error + slack * exact) << c->name() << ' ' << unit;
      }
    }
  }
}

}  // namespace
}  // namespace gradmeter::compression
