// SPDX-License-Identifier: Apache-2.0
#include "kernels/lns/lns.hpp"

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numbers>
#include <stdexcept>
#include <vector>

#include "core/format.hpp"
#include "core/random.hpp"
#include "kernels/host/threads.hpp"
#include "support/accuracy.hpp"
#include "support/every_target.hpp"
#include "support/kernel_references.hpp"

namespace gradmeter::kernels {
namespace {

using Words = std::vector<Lns16>;

using test::on_every_target;

// `share_of_zeros` in 16; codes of the others spread over `spread` around `centre`.
struct Numbers {
  std::int32_t centre = Lns16::one, spread = 3000;
  std::uint64_t share_of_zeros = 2;
};

Words random_words(std::size_t n, std::uint64_t stream, Numbers numbers) {
  const core::Random random(17, stream);
  Words words(n);
  for (std::size_t i = 0; i < n; ++i) {
    if (random.below(3 * i, 16) < numbers.share_of_zeros) continue;
    const auto offset = static_cast<std::int32_t>(random.below(3 * i + 1, static_cast<std::uint64_t>(numbers.spread)));
    words[i] = Lns16::from(random.below(3 * i + 2, 2) == 1, numbers.centre - numbers.spread / 2 + offset);
  }
  return words;
}

Words product(const GemmShape& p, const Lns& lns, const Words& a, const Words& b) {
  Words c(p.m * p.n, Lns16{0x1234});
  make_lns_gemm(p, lns)->run(a, b, c);
  return c;
}

Words by_reference(const GemmShape& p, const Lns& lns, const Words& a, const Words& b) {
  Words c(p.m * p.n);
  lns_gemm_reference(p, lns, a, b, c);
  return c;
}

std::vector<Lns> systems() {
  std::vector<Lns> all;
  for (const unsigned f : {6U, 7U, 8U})
    for (const LnsAddition kind : {LnsAddition::exact, LnsAddition::interpolated}) all.emplace_back(f, kind);
  return all;
}

void expect_the_bits_of_the_scalar_type(const GemmShape& p, Numbers numbers) {
  const Words a = random_words(p.m * p.k, p.m, numbers), b = random_words(p.k * p.n, p.n + 1000, numbers);
  for (const Lns& lns : systems()) {
    const Words expected = by_reference(p, lns, a, b);
    on_every_target([&] {
      EXPECT_EQ(product(p, lns, a, b), expected)
          << fmt::format("{}x{}x{} f{}", p.m, p.n, p.k, lns.fraction_bits()) << " kind " << int(lns.tables().kind());
    });
  }
}

class LnsGemmBits : public testing::Test {
 protected:
  void SetUp() override { set_compute_threads(1); }
  void TearDown() override { set_compute_threads(1); }
};

TEST_F(LnsGemmBits, AreThoseOfTheScalarTypeOnRaggedShapesAndEveryInstructionSet) {
  const core::Random random(23, 0);
  for (std::uint64_t i = 0; i < 24; ++i)
    expect_the_bits_of_the_scalar_type({.m = 1 + random.below(3 * i, 40),
                                        .n = 1 + random.below(3 * i + 1, 80),
                                        .k = 1 + random.below(3 * i + 2, 90),
                                        .transpose_a = i & 1 ? Transpose::yes : Transpose::no,
                                        .transpose_b = i & 2 ? Transpose::yes : Transpose::no},
                                       {});
}

TEST_F(LnsGemmBits, AreThoseOfTheScalarTypeWhereNumbersNearlyCancel) {
  expect_the_bits_of_the_scalar_type({.m = 17, .n = 40, .k = 300}, {.spread = 300, .share_of_zeros = 0});
  expect_the_bits_of_the_scalar_type({.m = 9, .n = 33, .k = 300}, {.spread = 4, .share_of_zeros = 1});
}

TEST_F(LnsGemmBits, AreThoseOfTheScalarTypeAmongZeros) {
  expect_the_bits_of_the_scalar_type({.m = 9, .n = 33, .k = 140}, {.share_of_zeros = 15});
  expect_the_bits_of_the_scalar_type({.m = 9, .n = 33, .k = 140}, {.share_of_zeros = 16});
}

// Products that fall below the range, or above it, or both.
TEST_F(LnsGemmBits, AreThoseOfTheScalarTypeAtTheEndsOfTheRange) {
  const GemmShape p{.m = 11, .n = 35, .k = 60};
  for (const std::int32_t centre : {8192, 8900, 23000, 24600})
    for (const std::int32_t spread : {200, 4000, 16000}) expect_the_bits_of_the_scalar_type(p, {centre, spread, 2});
  expect_the_bits_of_the_scalar_type(p, {.spread = 2 * Lns16::one - 2});
}

// Ranges around the widest that vectors take without a check: on either side of it the bits are the same.
TEST_F(LnsGemmBits, AreThoseOfTheScalarTypeAroundTheWidestWindow) {
  for (std::int32_t spread = 10800; spread < 11800; spread += 100)
    expect_the_bits_of_the_scalar_type({.m = 8, .n = 32, .k = 40}, {.centre = 16200, .spread = spread});
}

TEST_F(LnsGemmBits, AreThoseOfTheScalarTypeForEveryDistanceOfTwoTerms) {
  // Row i of A times column j of B: 1·1 ± 1·2^-(d / 2^F), with d = 64·i + j.
  const GemmShape p{.m = 40, .n = 64, .k = 2};
  for (const bool opposite : {false, true})
    for (const Lns& lns : systems()) {
      Words a(p.m * p.k), b(p.k * p.n);
      for (std::size_t i = 0; i < p.m; ++i) {
        a[2 * i] = Lns16::from(false, Lns16::one);
        a[2 * i + 1] = Lns16::from(opposite, Lns16::one - static_cast<std::int32_t>(64 * i));
      }
      for (std::size_t j = 0; j < p.n; ++j) {
        b[j] = Lns16::from(false, Lns16::one);
        b[p.n + j] = Lns16::from(false, Lns16::one - static_cast<std::int32_t>(j));
      }
      Words expected(p.m * p.n);
      for (std::uint32_t d = 0; d < expected.size(); ++d)
        if (d != 0 || !opposite) expected[d] = Lns16::from(false, Lns16::one + lns.tables().g(d, opposite));
      on_every_target([&] { EXPECT_EQ(product(p, lns, a, b), expected) << lns.fraction_bits() << opposite; });
    }
}

TEST_F(LnsGemmBits, DoNotDependOnTheNumberOfThreads) {
  const GemmShape p{.m = 100, .n = 170, .k = 300};
  const Words a = random_words(p.m * p.k, 1, {}), b = random_words(p.k * p.n, 2, {});
  const Words one = product(p, Lns(8), a, b);
  for (const int threads : {2, 3}) {
    set_compute_threads(threads);
    EXPECT_EQ(product(p, Lns(8), a, b), one);
  }
}

TEST_F(LnsGemmBits, AreThoseOfTheFirstRunInTheSecond) {
  const GemmShape p{.m = 20, .n = 50, .k = 60};
  const auto gemm = make_lns_gemm(p, Lns(7));
  const Words a = random_words(p.m * p.k, 1, {}), b = random_words(p.k * p.n, 2, {}), zeros(p.m * p.k);
  Words first(p.m * p.n), second(p.m * p.n);
  gemm->run(a, b, first);
  gemm->run(zeros, b, second);
  EXPECT_EQ(second, Words(p.m * p.n));
  gemm->run(a, b, second);
  EXPECT_EQ(first, second);
}

// Gaussian operands, K = 1024: the errors against float64 that are to be expected (a prototype measured 2.2e-3 and
// 3.5e-2). Sums of logarithms lose most: each of 1024 steps rounds to half a code.
struct Errors {
  double operands, linear, logarithmic;
};
Errors errors(unsigned fraction_bits) {
  const GemmShape p{.m = 32, .n = 32, .k = 1024};
  const core::Random random(31, 0);
  std::vector<float> a(p.m * p.k), b(p.k * p.n), exact(p.m * p.n), value(p.m * p.n);
  for (std::size_t i = 0; i < a.size(); ++i) a[i] = static_cast<float>(random.gaussian(i));
  for (std::size_t i = 0; i < b.size(); ++i) b[i] = static_cast<float>(random.gaussian(a.size() + i));
  make_gemm(p, "reference")->run(a, b, {}, exact);
  const Lns lns(fraction_bits);
  Words la(a.size()), lb(b.size()), lc(exact.size());
  lns_encode(lns, a, la);
  lns_encode(lns, b, lb);
  const auto error = [&](LnsSum sum) {
    make_lns_gemm(p, lns, sum)->run(la, lb, lc);
    lns_decode(lns, lc, value);
    return test::relative_error(value, exact);
  };
  lns_decode(lns, la, a);
  lns_decode(lns, lb, b);
  make_gemm(p, "reference")->run(a, b, {}, value);
  return {test::relative_error(value, exact), error(LnsSum::linear), error(LnsSum::logarithmic)};
}

TEST(LnsGemmAccuracy, IsThatOfItsOperandsWhenSumsAreLinear) {
  set_compute_threads(1);
  // Rounding is uniform in the log domain: ln 2 / 2^F / √12 for each operand, and once more for the result.
  const double step = std::numbers::ln2 / 128 / std::sqrt(12.0);
  const Errors seven = errors(7), eight = errors(8);
  EXPECT_NEAR(seven.operands, 2.2e-3, 0.2e-3);
  EXPECT_NEAR(seven.linear, step * std::sqrt(3.0), 0.1 * step * std::sqrt(3.0));
  EXPECT_NEAR(eight.linear, step / 2 * std::sqrt(3.0), 0.1 * step / 2 * std::sqrt(3.0));
}

TEST(LnsGemmAccuracy, IsThatOfAThousandRoundingsWhenSumsAreLogarithmic) {
  set_compute_threads(1);
  for (const unsigned f : {7U, 8U}) {
    const double error = errors(f).logarithmic;
    RecordProperty(fmt::format("error_f{}", f), fmt::format("{:.4f}", error));
    EXPECT_NEAR(error, f == 7 ? 3.5e-2 : 1.75e-2, f == 7 ? 0.7e-2 : 0.4e-2);
  }
}

TEST(LnsGemm, WhatItDoesNotDoIsRefused) {
  EXPECT_THROW(make_lns_gemm({.m = 0, .n = 1, .k = 1}, Lns(8)), std::invalid_argument);
  EXPECT_THROW(make_lns_gemm({.m = 1, .n = 1, .k = 1, .bias = true}, Lns(8)), std::invalid_argument);
  EXPECT_THROW(make_lns_gemm({.m = 1, .n = 1, .k = 1, .accumulate = true}, Lns(8)), std::invalid_argument);
  for (const LnsSum sum : {LnsSum::logarithmic, LnsSum::linear}) {
    const auto gemm = make_lns_gemm({.m = 2, .n = 3, .k = 4}, Lns(8), sum);
    Words a(8), b(12), c(6), longer(13);
    EXPECT_NO_THROW(gemm->run(a, b, c));
    EXPECT_THROW(gemm->run(longer, b, c), std::invalid_argument);
    EXPECT_THROW(gemm->run(a, longer, c), std::invalid_argument);
    EXPECT_THROW(gemm->run(a, b, longer), std::invalid_argument);
  }
}

TEST(LnsGemm, NamesWhatDoesTheWork) {
  EXPECT_TRUE(make_lns_gemm({.m = 1, .n = 1, .k = 1}, Lns(7))->implementation().starts_with("lns f7 exact, "));
  EXPECT_TRUE(make_lns_gemm({.m = 1, .n = 1, .k = 1}, Lns(8), LnsSum::linear)
                  ->implementation()
                  .starts_with("lns f8 linear, onednn"));
}

}  // namespace
}  // namespace gradmeter::kernels
