// SPDX-License-Identifier: Apache-2.0
#include "compression/codecs/sparse.hpp"

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>
#include <string_view>

#include "compression/support.hpp"
#include "core/error.hpp"

namespace gradmeter::compression {
namespace {

/// By sorting: the definition.
std::vector<float> largest_by_sorting(std::span<const float> x, std::size_t k) {
  std::vector<std::size_t> order(x.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return std::fabs(x[a]) > std::fabs(x[b]); });
  std::vector<float> out(x.size());
  for (std::size_t j = 0; j < k; ++j) out[order[j]] = x[order[j]];
  return out;
}

std::vector<std::vector<float>> awkward(std::size_t n) {
  auto few = gaussians(n), tiny = gaussians(n), rising = gaussians(n), peaks = gaussians(n);
  for (std::size_t i = 0; i < n; ++i) {
    few[i] = static_cast<float>(i * 7 % 5) - 2;  // many ties
    tiny[i] *= 0x1p-140F;
    rising[i] = static_cast<float>(i);
    if (i % 997 == 5) peaks[i] *= 1e30F;
  }
  std::vector<float> first(n);  // a sample sees it at places that are not like the rest
  for (std::size_t i = 0; i < n; i += 4) first[i] = 1;
  return {gaussians(n), few, tiny, rising, peaks, first, std::vector<float>(n), std::vector<float>(n, -1.5F)};
}

TEST(TopK, TakesWhatSortingTakesOnEveryInstructionSet) {
  for (const auto* name : {"topk", "topk:density=0.001", "topk:density=0.3", "topk:density=1"}) {
    const CodecPtr c = codec(name);
    for (const std::size_t n : {1u, 2u, 65u, 1000u, 40'003u}) {
      const auto k = detail::Density(find_codec(name)->parsed).sent_of(n);
      for (const auto& x : awkward(n)) {
        const auto expected = largest_by_sorting(x, k);
        on_every_target([&] { ASSERT_EQ(passed(*c, x), expected) << name << ' ' << n; });
      }
    }
  }
}

TEST(TopK, GathersFewCandidatesWhereASampleTellsWhich) {
  const auto x = gaussians(100'000);
  on_every_target([&] {
    const detail::Candidates few(x, 1000);
    ASSERT_GE(few.x.size(), 1000u);
    ASSERT_LT(few.x.size(), 4000u);
    ASSERT_EQ(few.places.size(), few.x.size());
    for (std::size_t i = 0; i < few.x.size(); ++i) ASSERT_EQ(few.x[i], x[few.places[i]]) << i;
    EXPECT_TRUE(std::is_sorted(few.places.begin(), few.places.end()));
  });
  const std::vector<float> zeros(x.size());
  EXPECT_EQ(detail::Candidates(zeros, 1000).x.size(), zeros.size());
  EXPECT_EQ(detail::Candidates(x, 50'000).x.size(), x.size());
}

TEST(TopK, LosesTheTailWhichIsItsShareAtMost) {
  const auto x = gaussians(20'000);
  const auto out = passed(*codec("topk"), x);
  double tail = 0, squares = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    tail += std::pow(double{x[i]} - double{out[i]}, 2);
    squares += double{x[i]} * double{x[i]};
  }
  EXPECT_LE(tail, (1 - 0.01) * squares);
  // The tail of a Gaussian beyond its 1 % holds 8.4 % of the energy (of twelve uniforms, a little less).
  EXPECT_NEAR(tail / squares, 0.92, 0.008);
}

TEST(TopK, CountsExactlyWhereFloatsDoNot) {
  const auto kept = [](const char* name, std::size_t n) {
    return detail::Density(find_codec(name)->parsed).sent_of(n);
  };
  EXPECT_EQ(kept("topk:density=0.07", 100), 7u);  // 0.07 * 100 is more than 7 in doubles
  EXPECT_EQ(kept("topk:density=0.01", 101), 2u);
  EXPECT_EQ(kept("topk:density=1e-05", 100'000), 1u);
  EXPECT_EQ(kept("topk:density=1e-05", 100'001), 2u);
  EXPECT_EQ(kept("topk:density=1", (std::size_t{1} << 24) + 1), (std::size_t{1} << 24) + 1);
  EXPECT_EQ(kept("topk:density=0.5", (std::size_t{1} << 24) + 1), (std::size_t{1} << 23) + 1);
  EXPECT_EQ(kept("topk:density=1e-300", 5), 1u);
  EXPECT_EQ(kept("topk", 0), 0u);
}

TEST(TopK, SendsPlacesThenValues) {
  std::vector<float> x(200);
  x[7] = -3, x[150] = 2;
  const Bytes wire = encoded(*codec("topk"), x);
  ASSERT_EQ(wire.size(), 32u);
  std::uint32_t places[2];
  float values[2];
  std::memcpy(places, wire.data(), 8);
  std::memcpy(values, wire.data() + 16, 8);
  EXPECT_EQ(places[0], 7u);
  EXPECT_EQ(places[1], 150u);
  EXPECT_EQ(values[0], -3);
  EXPECT_EQ(values[1], 2);
  EXPECT_EQ(codec("topk:density=0.03125")->wire_bytes(3200), 2u * 400);  // 1/32: places
  EXPECT_EQ(codec("topk:density=0.04")->wire_bytes(3200), 400u + 4 * 128);
}

TEST(TopK, RefusesMoreElementsThanPlacesCanName) {
  EXPECT_NO_THROW(codec("topk")->wire_bytes(std::size_t{1} << 32));
  EXPECT_THROW(codec("topk")->wire_bytes((std::size_t{1} << 32) + 1), core::UsageError);
  for (const auto* bad : {"topk:density=0", "topk:density=1.5", "topk:density=-1", "topk:density=nan"}) {
    EXPECT_THROW(find_codec(bad), core::UsageError) << bad;
  }
}

TEST(TopK, OneBadElementIsSeenEverywhere) {
  for (const auto* name : {"topk", "topk:density=0.1"}) {
    for (const float bad : {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
      auto x = gaussians(40'000);
      x[33'333] = bad;
      for (const float v : passed(*codec(name), x)) ASSERT_TRUE(std::isnan(v));
      std::vector<float> values(x.size(), 1.0F);
      TopK(find_codec(name)->parsed).clear_sent(encoded(*codec(name), x), values);
      EXPECT_EQ(values, std::vector<float>(x.size()));
    }
  }
}

TEST(TopK, DamagedBytesAreRefusedOrHarmless) {
  const core::Random random(3, 1);
  for (const auto* name : {"topk:density=0.02", "topk:density=0.2"}) {
    const CodecPtr c = codec(name);
    const auto x = gaussians(1000);
    const Bytes whole = encoded(*c, x);
    std::size_t refused = 0;
    for (std::uint64_t trial = 0; trial < 2000; ++trial) {
      Bytes wire = whole;
      wire[random.below(2 * trial, wire.size())] ^= static_cast<std::byte>(1 + random.below(2 * trial + 1, 255));
      try {
        decoded(*c, wire, x.size());
      } catch (const core::BackendError& e) {
        ++refused;
        ASSERT_NE(std::string_view(e.what()).find("topk"), std::string_view::npos) << e.what();
      }
    }
    EXPECT_GT(refused, 100u);
    EXPECT_THROW(decoded(*c, Bytes(whole.begin(), whole.end() - 16), x.size()), core::BackendError);
  }
}

}  // namespace
}  // namespace gradmeter::compression
