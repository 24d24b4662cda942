// SPDX-License-Identifier: Apache-2.0
#include "compression/codecs/quantized.hpp"

#include <cstring>
#include <limits>

#include "compression/detail/elias.hpp"
#include "compression/support.hpp"
#include "core/error.hpp"

namespace gradmeter::compression {
namespace {

TEST(Elias, NumbersComeBackAndTakeTheirBits) {
  Bytes bytes(4096);
  std::vector<std::uint64_t> numbers;
  for (unsigned i = 0; i < 64; ++i) {
    numbers.push_back(std::uint64_t{1} << i);
    numbers.push_back((std::uint64_t{1} << i) + 0x5555555555555555 % (std::uint64_t{1} << i));
    numbers.push_back(~std::uint64_t{0} >> (63 - i));
  }
  detail::BitWriter out(bytes.data());
  std::size_t bits = 0;
  for (const auto v : numbers) out.gamma(v), bits += detail::gamma_bits(v);
  const auto used = static_cast<std::size_t>(out.finish() - bytes.data());
  EXPECT_EQ(used, (bits + 7) / 8);
  detail::BitReader in(std::span<const std::byte>(bytes).first(used));
  for (const auto v : numbers) ASSERT_EQ(in.gamma(), v);
  EXPECT_FALSE(in.overrun());
  EXPECT_EQ(in.gamma(), 0u);
}

Moments moments_of(std::span<const float> x, std::size_t bucket, double s) {
  Moments m;
  each_bucket(x, bucket, [&](std::span<const float> b) {
    const double norm = length(b);
    for (const float v : b) {
      const double level = s * std::fabs(double{v}) / norm, f = level - std::floor(level);
      m.mean.push_back(double{v});
      m.variance.push_back(norm * norm / (s * s) * f * (1 - f));
    }
  });
  return m;
}

TEST(QsgdElias, HasTheMomentsOfThePaper) {
  const auto x = gaussians(1100);
  expect_moments(*codec("qsgd-elias"), x, moments_of(x, 512, 7));
  expect_moments(*codec("qsgd-elias:levels=127,bucket=64"), x, moments_of(x, 64, 127));
  expect_moments(*codec("qsgd-elias:levels=1"), x, moments_of(x, 512, 1), 2000);
}

TEST(QsgdElias, RefusesFeedbackWhereItMayLoseMoreThanThereIs) {
  EXPECT_THROW(find_codec("qsgd-elias:ef=on"), core::UsageError);
  EXPECT_NO_THROW(find_codec("qsgd-elias:bucket=64,levels=4,ef=on"));
  // All equal: the largest loss, here sqrt(64)/4 - 1 of the energy.
  const std::vector<float> x(64, 1.0F);
  std::vector<double> losses;
  for (std::uint64_t t = 0; t < 2000; ++t) {
    const auto q = passed(*codec("qsgd-elias:bucket=64,levels=4"), x, {.step = t});
    double loss = 0;
    for (const float v : q) loss += (double{v} - 1) * (double{v} - 1);
    losses.push_back(loss / 64);
  }
  expect_mean(losses, 1.0);
}

TEST(QsgdElias, SendsWhatItsFormatSays) {
  const std::vector<float> x{0, 0, -2, 0};
  const Bytes wire = encoded(*codec("qsgd-elias:levels=2"), x);
  ASSERT_EQ(wire.size(), 32u);
  float scale;
  std::memcpy(&scale, wire.data(), 4);
  EXPECT_EQ(scale, 2.0F);
  // Gap 3: 0 1 1; sign 1; level 2: 0 1 0; gap 2 to the end: 0 1 0. The first bit is the lowest.
  EXPECT_EQ(wire[16], std::byte{0b00101110});
  EXPECT_EQ(wire[17], std::byte{0b01});
}

TEST(QsgdElias, TakesFewBitsWhereMostIsZero) {
  const auto x = gaussians(1 << 16);
  const double bits = 8.0 * static_cast<double>(encoded(*codec("qsgd-elias:levels=1"), x).size()) / (1 << 16);
  EXPECT_LT(bits, 0.6);
  EXPECT_GT(bits, 0.1);
}

TEST(QsgdElias, TheDeclaredMaximumHoldsForTheWorst) {
  for (const auto* name :
       {"qsgd-elias:bucket=64,levels=1", "qsgd-elias:bucket=64,levels=7", "qsgd-elias:bucket=64,levels=127"}) {
    for (const std::size_t n : {1u, 63u, 64u, 1000u}) {
      for (const std::size_t every : {1u, 2u, 3u, 4u, 64u}) {
        std::vector<float> x(n);
        for (std::size_t i = 0; i < n; i += every) x[i] = i % 2 ? -1.0F : 1.0F;
        for (std::uint64_t t = 0; t < 20; ++t) encoded(*codec(name), x, {.step = t});  // checks the size
      }
    }
  }
}

TEST(QsgdElias, DamagedBytesAreRefusedOrHarmless) {
  const core::Random random(4, 2);
  const CodecPtr c = codec("qsgd-elias:bucket=64");
  std::size_t refused = 0;
  for (std::uint64_t trial = 0; trial < 20'000; ++trial) {
    const std::size_t n = 1 + random.below(4 * trial, 700);
    Bytes wire = encoded(*c, gaussians(n));
    wire[random.below(4 * trial + 1, wire.size())] ^= static_cast<std::byte>(1 + random.below(4 * trial + 2, 255));
    if (trial % 3 == 0) wire.resize(random.below(4 * trial + 3, wire.size()));
    if (trial % 7 == 0)
      std::fill(wire.begin() + static_cast<std::ptrdiff_t>(wire.size() / 2), wire.end(), std::byte{0});
    wire.shrink_to_fit();
    try {
      decoded(*c, wire, n);
    } catch (const core::BackendError&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 5000u);
}

TEST(QsgdElias, NoiseIsDecodedOrRefused) {
  const core::Random random(5, 3);
  const CodecPtr c = codec("qsgd-elias:bucket=64");
  for (std::uint64_t trial = 0; trial < 5000; ++trial) {
    Bytes wire(random.below(trial << 20, 300));
    for (std::size_t i = 0; i < wire.size(); ++i) wire[i] = static_cast<std::byte>(random.bits((trial << 20) + 1 + i));
    try {
      decoded(*c, wire, trial % 500);
    } catch (const core::BackendError&) {
    }
  }
}

TEST(QsgdElias, OneBadElementSpoilsItsBucketAlone) {
  auto x = gaussians(1200);
  x[600] = std::numeric_limits<float>::quiet_NaN();
  const auto out = passed(*codec("qsgd-elias"), x);
  for (std::size_t i = 0; i < x.size(); ++i) EXPECT_EQ(std::isnan(out[i]), i / 512 == 1) << i;
}

}  // namespace
}  // namespace gradmeter::compression
