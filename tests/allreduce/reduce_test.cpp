// SPDX-License-Identifier: Apache-2.0
#include "allreduce/reduce.hpp"

#include <gtest/gtest.h>
#include <hwy/highway.h>

#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "core/element.hpp"
#include "core/error.hpp"

namespace gradmeter::allreduce {
namespace {

using core::Element;
using Bytes = std::vector<std::byte>;

constexpr std::array reductions{Op::sum, Op::min, Op::max, Op::product};

std::vector<Element> elements_where(bool (*wanted)(Element)) {
  std::vector<Element> found;
  for (const auto& row : core::elements) {
    if (wanted(row.element)) found.push_back(row.element);
  }
  return found;
}
std::vector<Element> floats() {
  return elements_where([](Element e) { return !core::is_integer(e); });
}
std::vector<Element> small_floats() { return elements_where(core::is_small_float); }

Bytes bytes_of(Element e, const std::vector<double>& values) {
  Bytes bytes(values.size() * core::size_of(e));
  for (std::size_t i = 0; i < values.size(); ++i) core::store(e, bytes.data() + i * core::size_of(e), values[i]);
  return bytes;
}
double at(Element e, const Bytes& b, std::size_t i) { return core::load(e, b.data() + i * core::size_of(e)); }

/// The definition, one element at a time, in the type that the operation happens in.
template <class T>
T one(Op op, T a, T b) {
  if (op == Op::product) return a * b;
  if (op != Op::min && op != Op::max) return a + b;
  if constexpr (std::is_floating_point_v<T>) {
    if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<T>::quiet_NaN();
    if (a == b) return (op == Op::min) == std::signbit(a) ? a : b;
  }
  return (op == Op::min) == (a < b) ? a : b;
}
std::uint16_t one_code(Element e, Op op, std::uint16_t a, std::uint16_t b) {
  const auto f = core::small_format(e);
  return core::from_float(f, one(op, core::to_float(f, a), core::to_float(f, b)));
}
std::uint16_t code_at(Element e, const Bytes& b, std::size_t i) {
  if (core::size_of(e) == 1) return std::to_integer<std::uint16_t>(b[i]);
  std::uint16_t code = 0;
  std::memcpy(&code, b.data() + 2 * i, 2);
  return code;
}

Bytes reduced(Element e, Element accumulate, Op op, const std::vector<Bytes>& sources) {
  std::vector<const std::byte*> pointers;
  for (const auto& s : sources) pointers.push_back(s.data());
  Bytes out(sources[0].size());
  reduce(e, accumulate, op, out.data(), pointers, out.size() / core::size_of(e));
  return out;
}

/// Once for every instruction set that this machine has.
class OnEveryTarget : public ::testing::TestWithParam<std::int64_t> {
 protected:
  OnEveryTarget() { choose(GetParam()); }
  ~OnEveryTarget() override { choose(0); }

 private:
  static void choose(std::int64_t targets) {
    hwy::SetSupportedTargetsForTest(targets);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
};
INSTANTIATE_TEST_SUITE_P(Reduce, OnEveryTarget, ::testing::ValuesIn(hwy::SupportedAndGeneratedTargets()),
                         [](const auto& test) { return std::string(hwy::TargetName(test.param)); });

template <class T>
void expect_left_to_right(Op op, std::size_t n, std::size_t count) {
  std::vector<std::vector<T>> values(count, std::vector<T>(n));
  std::vector<const std::byte*> pointers;
  for (std::size_t s = 0; s < count; ++s) {
    for (std::size_t i = 0; i < n; ++i) values[s][i] = static_cast<T>(static_cast<int>((i * 7 + s * 13) % 11) - 5);
    pointers.push_back(reinterpret_cast<const std::byte*>(values[s].data()));
  }
  std::vector<T> expected = values[0];
  for (std::size_t s = 1; s < count; ++s) {
    for (std::size_t i = 0; i < n; ++i) expected[i] = static_cast<T>(one<T>(op, expected[i], values[s][i]));
  }
  // The destination is the last source: it must not be overwritten before it is read.
  const Element e = core::element_of<T>;
  reduce(e, e, op, reinterpret_cast<std::byte*>(values.back().data()), pointers, n);
  EXPECT_EQ(values.back(), expected) << core::info(e).name << ' ' << name(op) << " n " << n << " of " << count;
}

TEST_P(OnEveryTarget, ReduceEqualsTheLeftToRightLoopForAnyLengthAndNumberOfSources) {
  for (const Op op : reductions) {
    for (const std::size_t n : {0u, 1u, 15u, 16u, 17u, 1000u, 5000u}) {
      for (const std::size_t sources : {2u, 3u, 5u, 20u}) {
        expect_left_to_right<float>(op, n, sources);
        expect_left_to_right<double>(op, n, sources);
        expect_left_to_right<std::int32_t>(op, n, op == Op::product ? 5 : sources);  // the reference must not overflow
        expect_left_to_right<std::int64_t>(op, n, sources);
      }
    }
  }
}

TEST_P(OnEveryTarget, EveryPairOfCodesOfFp8AndInt8GivesTheBitsOfTheDefinition) {
  for (const Element e : {Element::e4m3, Element::e5m2, Element::i8}) {
    Bytes a(1 << 16), b(1 << 16);
    for (std::size_t i = 0; i < a.size(); ++i) a[i] = std::byte(i >> 8), b[i] = std::byte(i & 0xff);
    for (const Op op : reductions) {
      const Bytes out = reduced(e, e, op, {a, b});
      for (std::size_t i = 0; i < a.size(); ++i) {
        std::uint16_t expected = 0;
        if (e == Element::i8) {
          const int x = std::to_integer<std::int8_t>(a[i]), y = std::to_integer<std::int8_t>(b[i]);
          expected = static_cast<std::uint8_t>(one(op, x, y));
        } else {
          expected = one_code(e, op, code_at(e, a, i), code_at(e, b, i));
        }
        ASSERT_EQ(std::to_integer<unsigned>(out[i]), expected) << core::info(e).name << ' ' << name(op) << ' ' << i;
      }
    }
  }
}

TEST_P(OnEveryTarget, EveryCodeOf16BitsWithManyPartnersGivesTheBitsOfTheDefinition) {
  for (const Element e : {Element::f16, Element::bf16}) {
    const auto f = core::small_format(e);
    std::vector<std::uint16_t> partners{
        0,           f.sign(),         1,
        f.largest(), f.top_exponent(), f.nan(),
        0x3c00,      0x8001,           f.mantissa_bits < 8 ? std::uint16_t{0x3f80} : std::uint16_t{0x1234}};
    std::mt19937 random(7);
    for (int i = 0; i < 16; ++i) partners.push_back(static_cast<std::uint16_t>(random()));
    Bytes a(2 << 16), b(2 << 16);
    for (std::size_t i = 0; i < 1 << 16; ++i) {
      const auto code = static_cast<std::uint16_t>(i);
      std::memcpy(a.data() + 2 * i, &code, 2);
    }
    for (const auto partner : partners) {
      for (std::size_t i = 0; i < 1 << 16; ++i) std::memcpy(b.data() + 2 * i, &partner, 2);
      for (const Op op : reductions) {
        const Bytes out = reduced(e, e, op, {a, b});
        for (std::size_t i = 0; i < 1 << 16; ++i) {
          ASSERT_EQ(code_at(e, out, i), one_code(e, op, static_cast<std::uint16_t>(i), partner))
              << core::info(e).name << ' ' << name(op) << ' ' << i << ' ' << partner;
        }
      }
    }
  }
}

TEST_P(OnEveryTarget, WideningIsExactAndNarrowingRoundsAsTheReferenceDoes) {
  std::mt19937 random(3);
  for (const Element e : small_floats()) {
    const auto f = core::small_format(e);
    const std::size_t codes = std::size_t{1} << f.bits(), width = core::size_of(e);
    Bytes all(codes * width), back(codes * width);
    for (std::size_t i = 0; i < codes; ++i) std::memcpy(all.data() + i * width, &i, width);
    std::vector<float> wide(codes);
    widen(e, wide.data(), all.data(), codes);
    for (std::size_t i = 0; i < codes; ++i) {
      const float expected = core::to_float(f, static_cast<std::uint16_t>(i));
      if (std::isnan(expected)) {
        ASSERT_TRUE(std::isnan(wide[i])) << i;
      } else {
        ASSERT_EQ(std::bit_cast<std::uint32_t>(wide[i]), std::bit_cast<std::uint32_t>(expected)) << i;
      }
    }
    // Any bits at all; and those around every code, where the ties are.
    std::vector<float> values;
    for (int i = 0; i < 200'001; ++i) values.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(random())));
    for (std::size_t i = 0; i + 1 < codes; ++i) {
      const float middle = wide[i] + (wide[i + 1] - wide[i]) / 2;
      for (const float x : {middle, std::nextafter(middle, 0.0f), std::nextafter(middle, 1e38f)}) values.push_back(x);
    }
    back.resize(values.size() * width);
    narrow(e, back.data(), values.data(), values.size());
    for (std::size_t i = 0; i < values.size(); ++i) {
      ASSERT_EQ(code_at(e, back, i), core::from_float(f, values[i])) << core::info(e).name << ' ' << values[i];
    }
  }
}

std::vector<Bytes> random_sources(Element e, std::size_t sources, std::size_t n) {
  std::mt19937 random(11);
  std::uniform_real_distribution<double> uniform(-2, 2);
  std::vector<Bytes> all;
  for (std::size_t s = 0; s < sources; ++s) {
    std::vector<double> values(n);
    for (auto& v : values) v = uniform(random);
    all.push_back(bytes_of(e, values));
  }
  return all;
}

TEST_P(OnEveryTarget, SmallFloatsAreRoundedAfterEveryOperationOrOnceAsAsked) {
  for (const Element e : small_floats()) {
    const auto f = core::small_format(e);
    for (const Op op : reductions) {
      for (const std::size_t n : {1u, 31u, 257u}) {
        const auto sources = random_sources(e, 7, n);
        const Bytes each = reduced(e, e, op, sources), once = reduced(e, Element::f32, op, sources);
        for (std::size_t i = 0; i < n; ++i) {
          std::uint16_t code = code_at(e, sources[0], i);
          float sum = core::to_float(f, code);
          for (std::size_t s = 1; s < sources.size(); ++s) {
            const std::uint16_t next = code_at(e, sources[s], i);
            code = one_code(e, op, code, next);
            sum = one(op, sum, core::to_float(f, next));
          }
          ASSERT_EQ(code_at(e, each, i), code) << core::info(e).name << ' ' << name(op) << ' ' << i;
          ASSERT_EQ(code_at(e, once, i), core::from_float(f, sum)) << core::info(e).name << ' ' << name(op) << ' ' << i;
        }
      }
    }
  }
}

TEST_P(OnEveryTarget, OperandOrderNeverMattersForZerosAndNans) {
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  const std::vector<double> special{0.0, -0.0, nan, -nan, 1.0, -1.0, 2.0};
  for (const Element e : floats()) {
    std::vector<double> x, y;
    for (const double a : special) {
      for (const double b : special) x.push_back(a), y.push_back(b);
    }
    const Bytes a = bytes_of(e, x), b = bytes_of(e, y);
    const Bytes canonical = bytes_of(e, {nan});
    const std::size_t width = core::size_of(e);
    for (const Op op : reductions) {
      const Bytes forward = reduced(e, e, op, {a, b}), backward = reduced(e, e, op, {b, a});
      EXPECT_EQ(forward, backward) << core::info(e).name << ' ' << name(op);
      for (std::size_t i = 0; i < x.size(); ++i) {
        if (std::isnan(x[i]) || std::isnan(y[i])) {
          EXPECT_EQ(std::memcmp(forward.data() + i * width, canonical.data(), width), 0) << core::info(e).name << i;
        } else if (x[i] == 0 && y[i] == 0 && (op == Op::min || op == Op::max)) {
          const bool negative =
              op == Op::min ? std::signbit(x[i]) || std::signbit(y[i]) : std::signbit(x[i]) && std::signbit(y[i]);
          EXPECT_EQ(std::signbit(at(e, forward, i)), negative) << core::info(e).name << ' ' << name(op) << ' ' << i;
        }
      }
    }
  }
}

TEST_P(OnEveryTarget, TooLargeASumIsInfinityOrE4m3sNan) {
  for (const Element e : small_floats()) {
    const double largest = core::info(e).largest;
    const Bytes sum = reduced(e, e, Op::sum, {bytes_of(e, {largest, -largest}), bytes_of(e, {largest, -largest})});
    if (e == Element::e4m3) {
      EXPECT_TRUE(std::isnan(at(e, sum, 0)) && std::isnan(at(e, sum, 1)));
    } else {
      EXPECT_EQ(at(e, sum, 0), std::numeric_limits<double>::infinity());
      EXPECT_EQ(at(e, sum, 1), -std::numeric_limits<double>::infinity());
    }
  }
}

TEST_P(OnEveryTarget, FinishOfAnAverageMultipliesInFp32AndRoundsOnce) {
  for (const Element e : small_floats()) {
    const auto f = core::small_format(e);
    const Bytes sum = random_sources(e, 1, 77)[0];
    Bytes average(sum.size());
    finish(e, Op::average, average.data(), sum.data(), 77, 3);
    for (std::size_t i = 0; i < 77; ++i) {
      const float expected = core::to_float(f, code_at(e, sum, i)) * static_cast<float>(1.0 / 3);
      EXPECT_EQ(code_at(e, average, i), core::from_float(f, expected)) << core::info(e).name << ' ' << i;
    }
  }
}

TEST(Reduce, IntegersWrap) {
  const std::vector<std::int64_t> a{INT64_MAX}, b{1};
  std::int64_t out = 0;
  const std::array sources{reinterpret_cast<const std::byte*>(a.data()), reinterpret_cast<const std::byte*>(b.data())};
  reduce(Element::i64, Element::i64, Op::sum, reinterpret_cast<std::byte*>(&out), sources, 1);
  EXPECT_EQ(out, INT64_MIN);
  const std::array<std::int8_t, 2> x{100, 127}, y{100, 2};
  std::array<std::int8_t, 2> z{};
  const std::array small{reinterpret_cast<const std::byte*>(x.data()), reinterpret_cast<const std::byte*>(y.data())};
  reduce(Element::i8, Element::i8, Op::sum, reinterpret_cast<std::byte*>(z.data()), small, 2);
  EXPECT_EQ(z, (std::array<std::int8_t, 2>{-56, -127}));
}

TEST(Reduce, AverageDividesOnceInFinish) {
  std::vector<float> v{3, 6, 9}, out(3);
  finish(Element::f32, Op::average, reinterpret_cast<std::byte*>(out.data()),
         reinterpret_cast<const std::byte*>(v.data()), 3, 3);
  for (int i = 0; i < 3; ++i) EXPECT_FLOAT_EQ(out[static_cast<std::size_t>(i)], static_cast<float>(i + 1));
}

TEST(Reduce, FinishOfASumCopiesWhenThePlacesDiffer) {
  for (const auto& row : core::elements) {
    const Bytes v = bytes_of(row.element, {1, 2});
    Bytes out(v.size());
    finish(row.element, Op::sum, out.data(), v.data(), 2, 7);
    EXPECT_EQ(out, v) << row.name;
  }
}

TEST(Reduce, AverageOfIntegersIsRefused) {
  for (const auto& row : core::elements) {
    if (core::is_integer(row.element)) {
      EXPECT_THROW(check_supported(row.element, Op::average), core::UsageError);
    } else {
      EXPECT_NO_THROW(check_supported(row.element, Op::average));
    }
    EXPECT_NO_THROW(check_supported(row.element, Op::sum));
  }
}

TEST(Reduce, OnlySmallFloatsAccumulateInFp32) {
  for (const auto& row : core::elements) {
    const bool may = core::is_small_float(row.element) || row.element == Element::f32;
    if (may) {
      EXPECT_NO_THROW(check_supported(row.element, Op::sum, Element::f32)) << row.name;
    } else {
      EXPECT_THROW(check_supported(row.element, Op::sum, Element::f32), core::UsageError) << row.name;
    }
  }
  EXPECT_THROW(check_supported(Element::bf16, Op::sum, Element::f64), core::UsageError);
}

}  // namespace
}  // namespace gradmeter::allreduce
