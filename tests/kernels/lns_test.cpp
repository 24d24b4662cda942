// SPDX-License-Identifier: Apache-2.0
#include "kernels/lns/lns.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numbers>
#include <thread>
#include <tuple>
#include <vector>

#include "core/error.hpp"
#include "core/format.hpp"
#include "core/random.hpp"
#include "support/kernel_references.hpp"

namespace gradmeter::kernels {
namespace {

constexpr std::uint32_t words = 65536;
Lns16 word(std::uint32_t bits) { return {static_cast<std::uint16_t>(bits)}; }

// Words with all signs and codes of some stretch around one, and some of the whole range.
std::vector<Lns16> some_words(std::size_t n, std::uint64_t stream) {
  const core::Random random(3, stream);
  std::vector<Lns16> result;
  for (std::size_t i = 0; i < n; ++i) {
    const bool near = random.below(3 * i, 4) != 0;
    const auto code = static_cast<std::int32_t>(near ? 14000 + random.below(3 * i + 1, 4800)
                                                     : random.below(3 * i + 1, Lns16::largest + 1));
    result.push_back(code == 0 ? Lns16{} : Lns16::from(random.below(3 * i + 2, 2) == 1, code));
  }
  return result;
}

class LnsContract : public testing::TestWithParam<std::tuple<unsigned, LnsAddition>> {
 protected:
  unsigned fraction_bits() const { return std::get<0>(GetParam()); }
  LnsAddition addition() const { return std::get<1>(GetParam()); }
  Lns lns() const { return Lns(fraction_bits(), addition()); }
};

TEST_P(LnsContract, EveryWordSurvivesDecodeAndEncode) {
  const Lns l = lns();
  for (std::uint32_t w = 0; w < words; ++w) {
    LnsEvents events;
    ASSERT_EQ(l.encode(l.decode(word(w)), &events), word(w).zero() ? Lns16{} : word(w)) << w;
    ASSERT_EQ(events, LnsEvents{}) << w;
  }
}

TEST_P(LnsContract, EncodingIsToTheNearestLogarithm) {
  const Lns l = lns();
  const core::Random random(1, 2);
  for (std::uint64_t i = 0; i < 20000; ++i) {
    const double log = 100.0 * (random.uniform(i) - 0.5), x = std::exp2(log);
    const double coded = double(l.encode(x).code() - Lns16::one) / double(1U << fraction_bits());
    ASSERT_LE(std::fabs(coded - log), 0.5000001 / double(1U << fraction_bits())) << x;
    ASSERT_EQ(l.encode(-x), -l.encode(x));
  }
}

TEST_P(LnsContract, AnUnsaturatedProductDividedByOneFactorIsTheOther) {
  const Lns l = lns();
  const auto x = some_words(40000, 1), y = some_words(40000, 2);
  std::size_t checked = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    LnsEvents events;
    const Lns16 product = l.multiply(x[i], y[i], &events);
    ASSERT_EQ(product, l.multiply(y[i], x[i]));
    if (y[i].zero() || events != LnsEvents{}) continue;
    ASSERT_EQ(l.divide(product, y[i]), x[i]) << x[i].bits << " " << y[i].bits;
    ++checked;
  }
  EXPECT_GT(checked, x.size() / 2);
}

TEST_P(LnsContract, ANumberPlusItselfIsOneOctaveHigherAndMinusItselfIsZero) {
  const Lns l = lns();
  for (std::uint32_t w = 0; w < words; ++w) {
    const Lns16 x = word(w);
    ASSERT_EQ(l.subtract(x, x), Lns16{}) << w;
    if (x.zero()) continue;
    const std::int32_t octave = std::min(x.code() + (1 << fraction_bits()), Lns16::largest);
    ASSERT_EQ(l.add(x, x), Lns16::from(x.negative(), octave)) << w;
  }
}

TEST_P(LnsContract, SumsCommuteAndMirrorTheirSigns) {
  const Lns l = lns();
  const auto x = some_words(40000, 3), y = some_words(40000, 4);
  for (std::size_t i = 0; i < x.size(); ++i) {
    ASSERT_EQ(l.add(x[i], y[i]), l.add(y[i], x[i]));
    ASSERT_EQ(l.add(-x[i], -y[i]), -l.add(x[i], y[i]));
    ASSERT_EQ(l.add(x[i], {}), x[i]);
    ASSERT_EQ(l.multiply(-x[i], y[i]), -l.multiply(x[i], y[i]));
  }
}

TEST(LnsSum, IsMonotoneInBothTerms) {
  for (const unsigned f : {6U, 7U, 8U}) {
    const Lns l(f);
    // 0 between negative numbers in falling size and positive ones in rising size: all words in the order of value.
    for (const std::int32_t fixed : {14000, 16384, 17011})
      for (const bool negative : {false, true}) {
        const Lns16 y = Lns16::from(negative, fixed);
        double last = -std::numeric_limits<double>::infinity();
        for (std::int32_t v = -Lns16::largest; v <= Lns16::largest; ++v) {
          const double sum = l.decode(l.add(v == 0 ? Lns16{} : Lns16::from(v < 0, std::abs(v)), y));
          ASSERT_GE(sum, last) << f << " " << v << " " << y.bits;
          last = sum;
        }
      }
  }
}

TEST(LnsTables, EveryExactEntryIsWithinHalfACodeOfTheRealFunction) {
  const std::uint32_t expected[] = {483, 1092, 2440};
  for (const unsigned f : {6U, 7U, 8U}) {
    const LnsTables& t = lns_tables(f);
    EXPECT_EQ(t.entries(), expected[f - 6]);
    for (const bool opposite : {false, true})
      for (std::uint32_t d = opposite ? 1 : 0; d < 40000; ++d)
        ASSERT_LE(std::fabs(t.g(d, opposite) - lns_g(f, d, opposite)), 0.5) << f << " " << d << " " << opposite;
    EXPECT_EQ(t.g(0, false), 1 << f);
  }
}

TEST(LnsTables, TheRealFunctionIsTheLogarithmOfASum) {
  for (const unsigned f : {6U, 8U})
    for (const double d : {1.0, 17.0, 300.0, 900.0}) {
      const double ulps = double(1U << f), small = std::exp2(-d / ulps);
      EXPECT_NEAR(lns_g(f, d, false), ulps * std::log2(1 + small), 1e-9);
      EXPECT_NEAR(lns_g(f, d, true), ulps * std::log2(1 - small), 1e-9);
    }
}

TEST(LnsTables, InterpolationKeepsItsStatedError) {
  for (const bool opposite : {false, true}) {
    double worst = 0;
    for (const unsigned f : {6U, 7U, 8U})
      for (std::uint32_t d = opposite ? 1 : 0; d < 40000; ++d)
        worst =
            std::max(worst, std::fabs(lns_tables(f, LnsAddition::interpolated).g(d, opposite) - lns_g(f, d, opposite)));
    EXPECT_LE(worst, lns_interpolation_error(opposite));
    EXPECT_GE(worst, 0.95 * lns_interpolation_error(opposite)) << "state a smaller one";
  }
}

TEST(LnsTables, OtherFractionsAreRefused) {
  EXPECT_THROW(lns_tables(5), core::UsageError);
  EXPECT_THROW(Lns(9), core::UsageError);
}

TEST(LnsTables, ThreadsGetOneTable) {
  std::vector<const LnsTables*> seen(4);
  std::vector<std::thread> threads;
  for (auto& s : seen) threads.emplace_back([&s] { s = &lns_tables(7); });
  for (auto& t : threads) t.join();
  for (const auto* s : seen) EXPECT_EQ(s, &lns_tables(7));
}

TEST(LnsRange, WhatLeavesItIsCounted) {
  const Lns l(8);
  LnsEvents e;
  const Lns16 largest = Lns16::from(false, Lns16::largest), smallest = Lns16::from(true, 1);
  EXPECT_EQ(l.encode(0x1p64, &e), largest);
  EXPECT_EQ(l.encode(-std::numeric_limits<double>::infinity(), &e), -largest);
  EXPECT_EQ(l.multiply(largest, largest, &e), largest);
  EXPECT_EQ(l.add(largest, largest, &e), largest);
  EXPECT_EQ(l.divide(largest, {}, &e), largest);
  EXPECT_EQ(e, (LnsEvents{.overflows = 5}));
  e = {};
  EXPECT_EQ(l.encode(0x1p-65, &e), Lns16{});
  EXPECT_EQ(l.encode(-5e-324, &e), Lns16{});
  EXPECT_EQ(l.multiply(smallest, smallest, &e), Lns16{});
  EXPECT_EQ(l.subtract(smallest, Lns16::from(true, 2), &e), Lns16{});
  EXPECT_EQ(e, (LnsEvents{.underflows = 4}));
  e = {};
  EXPECT_EQ(l.encode(std::nan(""), &e), Lns16{});
  EXPECT_EQ(l.divide({}, {}, &e), Lns16{});
  EXPECT_EQ(e, (LnsEvents{.nans = 2}));
  EXPECT_EQ(l.encode(-0.0, &e), Lns16{});
  EXPECT_EQ(l.multiply({0x8000}, {0x8000}, &e), Lns16{});
  EXPECT_EQ(e, (LnsEvents{.nans = 2}));
}

// A term is lost when d reaches the end of G+: the sum is then 2^(F+1.53) times a term, less what rounding took.
TEST(LnsSum, OfEqualTermsStalls) {
  const int expected[] = {185, 370, 740};
  for (const unsigned f : {6U, 7U, 8U}) {
    const Lns l(f);
    const Lns16 term = l.encode(1.0);
    Lns16 sum;
    int terms = 0;
    for (Lns16 next = l.add(sum, term); next != sum; next = l.add(sum, term), ++terms) sum = next;
    const double size = l.decode(sum);
    EXPECT_NEAR(size, expected[f - 6], 0.01 * expected[f - 6]) << f << " after " << terms;
  }
}

TEST(LnsSum, KahanDoesNotStall) {
  for (const unsigned f : {6U, 7U, 8U}) {
    const Lns l(f);
    LnsKahan sum;
    constexpr int terms = 10000;
    for (int i = 0; i < terms; ++i) sum.add(l, l.encode(1.0));
    // Two codes: the sum itself is rounded to one.
    EXPECT_NEAR(l.decode(sum.w) / terms, 1, 2 * std::numbers::ln2 / double(1U << f)) << f;
  }
}

TEST(LnsKahanStep, IsTheFourOperationsInTheirOrder) {
  const Lns l(7);
  const Lns16 rate = l.encode(-0.02);
  LnsKahan step{l.encode(0.7), {}};
  Lns16 w = step.w, c;
  const auto gradients = some_words(200, 9);
  for (const Lns16 g : gradients) {
    const Lns16 y = l.add(l.multiply(rate, g), -c), t = l.add(w, y);
    c = l.add(l.add(t, -w), -y);
    w = t;
    step.add(l, l.multiply(rate, g));
    ASSERT_EQ(step.w, w);
    ASSERT_EQ(step.c, c);
  }
}

TEST_P(LnsContract, BuffersAreConvertedAsSingleNumbersAre) {
  const Lns l = lns();
  const core::Random random(4, 4);
  std::vector<float> x{0.0F, -0.0F, 1e-40F, -1e-45F, std::numeric_limits<float>::infinity(), std::nanf(""), 3e38F};
  for (std::uint64_t i = 0; i < 300000; ++i)
    x.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(random.bits(i))));
  // Both neighbours of each border between codes.
  for (int i = -300; i < 300; ++i) {
    const auto border = static_cast<float>(std::exp2((i + 0.5) / double(1U << fraction_bits())));
    x.insert(x.end(), {std::nextafterf(border, 0), border, std::nextafterf(border, 1e30F)});
  }
  std::vector<Lns16> coded(x.size());
  LnsEvents events, expected;
  lns_encode(l, x, coded, &events);
  for (std::size_t i = 0; i < x.size(); ++i) ASSERT_EQ(coded[i], l.encode(double{x[i]}, &expected)) << x[i];
  EXPECT_EQ(events, expected);

  std::vector<Lns16> every;
  for (std::uint32_t w = 0; w < words; ++w) every.push_back(word(w));
  std::vector<float> decoded(words);
  lns_decode(l, every, decoded);
  for (std::uint32_t w = 0; w < words; ++w) {
    constexpr double most = std::numeric_limits<float>::max();
    ASSERT_EQ(decoded[w], static_cast<float>(std::clamp(l.decode(every[w]), -most, most))) << w;
  }
}

INSTANTIATE_TEST_SUITE_P(Systems, LnsContract,
                         testing::Combine(testing::Values(6U, 7U, 8U),
                                          testing::Values(LnsAddition::exact, LnsAddition::interpolated)),
                         [](const auto& i) {
                           return fmt::format("f{}_{}", std::get<0>(i.param),
                                              std::get<1>(i.param) == LnsAddition::exact ? "exact" : "interpolated");
                         });

}  // namespace
}  // namespace gradmeter::kernels
