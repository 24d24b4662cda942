// SPDX-License-Identifier: Apache-2.0
#include "core/element.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <vector>

namespace gradmeter::core {
namespace {

constexpr std::array small_elements{Element::f16, Element::bf16, Element::e4m3, Element::e5m2};

class SmallFloat : public ::testing::TestWithParam<Element> {
 protected:
  const Element element_ = GetParam();
  const SmallFormat format_ = small_format(element_);
  const unsigned codes_ = 1u << format_.bits();

  /// All finite values from the smallest to the largest, by the definition of the format and nothing else.
  std::vector<double> grid() const {
    std::vector<double> values;
    for (unsigned code = 0; code <= format_.largest(); ++code) {
      const int exponent = static_cast<int>(code >> format_.mantissa_bits);
      const double mantissa = code & ((1u << format_.mantissa_bits) - 1);
      const double fraction = std::ldexp(mantissa, -format_.mantissa_bits) + (exponent > 0);
      values.push_back(std::ldexp(fraction, std::max(exponent, 1) - format_.bias()));
    }
    return values;
  }
};

TEST_P(SmallFloat, EveryCodeComesBackFromItsFloat) {
  for (unsigned c = 0; c < codes_; ++c) {
    const auto code = static_cast<std::uint16_t>(c);
    const float value = to_float(format_, code);
    if (format_.is_nan(code)) {
      EXPECT_TRUE(std::isnan(value)) << c;
      EXPECT_EQ(from_float(format_, value), format_.nan()) << c;
    } else {
      EXPECT_EQ(from_float(format_, value), code) << c;
      EXPECT_EQ(std::signbit(value), (code & format_.sign()) != 0) << c;
    }
  }
}

TEST_P(SmallFloat, EveryCodeIsTheValueOfTheFormatsDefinition) {
  const auto values = grid();
  for (unsigned c = 0; c < values.size(); ++c) {
    EXPECT_EQ(static_cast<double>(to_float(format_, static_cast<std::uint16_t>(c))), values[c]);
    EXPECT_EQ(static_cast<double>(to_float(format_, static_cast<std::uint16_t>(c | format_.sign()))), -values[c]);
  }
  EXPECT_EQ(values.back(), info(element_).largest);
  EXPECT_EQ(values[1], info(element_).smallest);
}

TEST_P(SmallFloat, BetweenNeighboursTheNearerIsTakenAndTheEvenInTheMiddle) {
  const auto values = grid();
  for (unsigned low = 0; low + 1 < values.size(); ++low) {
    const double middle = (values[low] + values[low + 1]) / 2;
    const auto even = low % 2 == 0 ? low : low + 1;
    for (const double sign : {1.0, -1.0}) {
      const unsigned s = sign < 0 ? format_.sign() : 0u;
      EXPECT_EQ(from_double(format_, sign * middle), even | s) << low;
      EXPECT_EQ(from_double(format_, sign * std::nextafter(middle, 0.0)), low | s) << low;
      EXPECT_EQ(from_double(format_, sign * std::nextafter(middle, 1e300)), (low + 1) | s) << low;
    }
  }
}

TEST_P(SmallFloat, TooLargeIsInfinityOrNanOrTheLargestWhenSaturating) {
  const double largest = info(element_).largest, step = largest - grid().end()[-2];
  const unsigned beyond = format_.infinities ? unsigned{format_.top_exponent()} : unsigned{format_.nan()};
  // The middle between the largest and the first that is missing goes to the even one of the two.
  const bool even = format_.largest() % 2 == 0;
  EXPECT_EQ(from_double(format_, largest + step / 2), even ? unsigned{format_.largest()} : beyond);
  EXPECT_EQ(from_double(format_, std::nextafter(largest + step / 2, 0)), format_.largest());
  for (const double x :
       {std::nextafter(largest + step / 2, 1e308), 2 * largest, 1e300, std::numeric_limits<double>::infinity()}) {
    EXPECT_EQ(from_double(format_, x), beyond) << x;
    EXPECT_EQ(from_double(format_, -x), format_.infinities ? beyond | format_.sign() : beyond) << x;
    EXPECT_EQ(from_double(format_, x, Overflow::saturate), format_.largest()) << x;
    EXPECT_EQ(from_double(format_, -x, Overflow::saturate), format_.largest() | format_.sign()) << x;
  }
  EXPECT_EQ(from_double(format_, std::nan(""), Overflow::saturate), format_.nan());
  EXPECT_EQ(from_double(format_, -std::nan("")), format_.nan());
}

TEST_P(SmallFloat, TinyNumbersBecomeZeroOfTheirSign) {
  const double half = info(element_).smallest / 2;
  EXPECT_EQ(from_double(format_, half), 0) << "the middle goes to the even zero";
  EXPECT_EQ(from_double(format_, -half), format_.sign());
  EXPECT_EQ(from_double(format_, std::nextafter(half, 1)), 1);
  for (const double x : {0.0, 1e-300, 5e-324, half / 2}) {
    EXPECT_EQ(from_double(format_, x), 0) << x;
    EXPECT_EQ(from_double(format_, -x), format_.sign()) << x;
  }
}

TEST_P(SmallFloat, IntegersAreExactAsFarAsTheTableSaysAndNoFurther) {
  const std::int64_t run = info(element_).exact_integers;
  std::byte place[2];
  for (std::int64_t i = -run; i <= run; ++i) {
    store(element_, place, static_cast<double>(i));
    ASSERT_EQ(load(element_, place), static_cast<double>(i));
  }
  store(element_, place, static_cast<double>(run + 1));
  EXPECT_NE(load(element_, place), static_cast<double>(run + 1));
}

INSTANTIATE_TEST_SUITE_P(All, SmallFloat, ::testing::ValuesIn(small_elements), [](const auto& test) {
  std::string name(core::info(test.param).name);
  std::erase(name, '-');
  return name;
});

/// Bit patterns 4099 apart with their neighbours at every power of two: all exponents, all tails near a rounding.
template <SmallFormat f>
void expect_equal_codes() {
  const auto compare = [](std::uint32_t bits) {
    const auto value = std::bit_cast<float>(bits);
    for (const Overflow overflow : {Overflow::honest, Overflow::saturate}) {
      ASSERT_EQ(rounded_code<f>(value, overflow), from_float(f, value, overflow)) << std::hex << bits;
    }
  };
  for (std::uint64_t bits = 0; bits < std::uint64_t{1} << 32; bits += 4099) compare(static_cast<std::uint32_t>(bits));
  for (unsigned code = 0; code < 2u << (f.exponent_bits + f.mantissa_bits); ++code) {
    const float value = to_float(f, static_cast<std::uint16_t>(code)),
                next = to_float(f, static_cast<std::uint16_t>(code + 1));
    const auto at = std::bit_cast<std::uint32_t>(value), tie = std::bit_cast<std::uint32_t>(value / 2 + next / 2);
    for (const std::uint32_t bits : {at - 1, at, at + 1, tie - 1, tie, tie + 1}) compare(bits);
  }
}
TEST(SmallFloatCodes, ThoseIn32BitIntegersAreTheSame) {
  expect_equal_codes<fp16_format>();
  expect_equal_codes<bf16_format>();
  expect_equal_codes<e4m3_format>();
  expect_equal_codes<e5m2_format>();
}

TEST(SmallFloatCodes, KnownCodesOfTheStandards) {
  EXPECT_EQ(from_float(fp16_format, 1.0f), 0x3c00);
  EXPECT_EQ(from_float(bf16_format, 1.0f), 0x3f80);
  EXPECT_EQ(from_float(e4m3_format, 1.0f), 0x38);
  EXPECT_EQ(from_float(e5m2_format, 1.0f), 0x3c);
  EXPECT_EQ(from_float(e4m3_format, 448.0f), 0x7e);
  EXPECT_EQ(from_float(e5m2_format, 57344.0f), 0x7b);
  EXPECT_EQ(e4m3_format.nan(), 0x7f);
  EXPECT_EQ(e5m2_format.nan(), 0x7e);
  EXPECT_EQ(fp16_format.nan(), 0x7e00);
  EXPECT_EQ(bf16_format.nan(), 0x7fc0);
}

TEST(SmallFloatCodes, TenThousandUniformValuesSummedInBf16Stall) {
  float sum = 0;
  std::uint32_t state = 1;
  for (int i = 0; i < 10000; ++i) {
    state = state * 1664525u + 1013904223u;
    const float x = static_cast<float>(state >> 8) * 0x1p-24f;
    sum = to_float(bf16_format, from_float(bf16_format, sum + to_float(bf16_format, from_float(bf16_format, x))));
  }
  EXPECT_EQ(sum, 256);
}

TEST(SmallFloatCodes, LoadAndStoreKnowEveryElement) {
  for (const auto& row : elements) {
    std::array<std::byte, 8> place{};
    for (const double x : {0.0, 1.0, -1.0, 2.0, -8.0}) {
      store(row.element, place.data(), x);
      EXPECT_EQ(load(row.element, place.data()), x) << row.name;
    }
  }
}

}  // namespace
}  // namespace gradmeter::core
