// SPDX-License-Identifier: Apache-2.0
#include "kernels/gemm/gemm.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "core/format.hpp"
#include "core/random.hpp"
#include "kernels/host/threads.hpp"
#include "kernels/op.hpp"
#include "support/accuracy.hpp"
#include "support/kernel_references.hpp"

namespace gradmeter::kernels {
namespace {

std::vector<float> gaussians(std::size_t n, std::uint64_t stream) {
  const core::Random random(7, stream);
  std::vector<float> values(n);
  for (std::size_t i = 0; i < n; ++i) values[i] = static_cast<float>(random.gaussian(i));
  return values;
}

struct Operands {
  std::vector<float> a, b, bias, c;
  explicit Operands(const GemmShape& p)
      : a(gaussians(p.m * p.k, 0)),
        b(gaussians(p.k * p.n, 1)),
        bias(gaussians(p.bias ? p.n : 0, 2)),
        c(gaussians(p.m * p.n, 3)) {}
};

// Three plain loops: the reference for both backends.
std::vector<float> by_definition(const GemmShape& p, const Operands& o) {
  std::vector<float> result(p.m * p.n);
  for (std::size_t i = 0; i < p.m; ++i)
    for (std::size_t j = 0; j < p.n; ++j) {
      double sum = p.accumulate ? double{o.c[i * p.n + j]} : 0.0;
      if (p.bias) sum += double{o.bias[j]};
      for (std::size_t k = 0; k < p.k; ++k) {
        const double left = p.transpose_a == Transpose::yes ? o.a[k * p.m + i] : o.a[i * p.k + k];
        const double right = p.transpose_b == Transpose::yes ? o.b[j * p.k + k] : o.b[k * p.n + j];
        sum += left * right;
      }
      if (p.activation == Activation::relu) sum = std::max(sum, 0.0);
      result[i * p.n + j] = static_cast<float>(sum);
    }
  return result;
}

std::vector<float> run(Gemm& gemm, const Operands& o) {
  std::vector<float> c = o.c;
  gemm.run(o.a, o.b, o.bias, c);
  return c;
}

std::string describe(const GemmShape& p) {
  return fmt::format("{}x{}x{} ta={} tb={} bias={} relu={} accumulate={}", p.m, p.n, p.k,
                     p.transpose_a == Transpose::yes, p.transpose_b == Transpose::yes, p.bias,
                     p.activation == Activation::relu, p.accumulate);
}

// All 32 ways to ask for one product.
std::vector<GemmShape> variants(std::size_t m, std::size_t n, std::size_t k) {
  std::vector<GemmShape> all;
  for (unsigned bits = 0; bits < 32; ++bits)
    all.push_back({.m = m,
                   .n = n,
                   .k = k,
                   .transpose_a = bits & 1 ? Transpose::yes : Transpose::no,
                   .transpose_b = bits & 2 ? Transpose::yes : Transpose::no,
                   .bias = (bits & 4) != 0,
                   .activation = bits & 8 ? Activation::relu : Activation::none,
                   .accumulate = (bits & 16) != 0});
  return all;
}

class GemmContract : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { set_compute_threads(1); }
  std::unique_ptr<Gemm> make(const GemmShape& p) const { return make_gemm(p, GetParam()); }
  void expect_right(const GemmShape& p) const {
    const Operands operands(p);
    const double error = test::relative_error(run(*make(p), operands), by_definition(p, operands));
    EXPECT_LE(error, gemm_tolerance(p)) << describe(p);
    worst_ = std::max(worst_, error / gemm_tolerance(p));
  }
  mutable double worst_ = 0;
};

TEST_P(GemmContract, EveryVariantAgreesWithTheDefinitionOnRaggedShapes) {
  const core::Random random(11, 0);
  for (std::uint64_t i = 0; i < 24; ++i)
    for (const GemmShape& p :
         variants(1 + random.below(3 * i, 70), 1 + random.below(3 * i + 1, 70), 1 + random.below(3 * i + 2, 90)))
      expect_right(p);
  RecordProperty("worst_share_of_tolerance", fmt::format("{:.3f}", worst_));
}

TEST_P(GemmContract, EveryVariantAgreesWithTheDefinitionOnThinShapes) {
  const std::size_t shapes[][3] = {{1, 1, 1}, {1, 17, 33}, {33, 1, 17}, {17, 33, 1}, {1, 300, 140}, {16, 10, 129}};
  for (const auto& [m, n, k] : shapes)
    for (const GemmShape& p : variants(m, n, k)) expect_right(p);
}

TEST_P(GemmContract, ALayerOfARealModelAgreesWithTheDefinition) {
  expect_right({.m = 64, .n = 300, .k = 784, .transpose_b = Transpose::yes, .bias = true});
  expect_right({.m = 10, .n = 1024, .k = 256, .transpose_a = Transpose::yes});
}

TEST_P(GemmContract, OneMissingSummandInOneElementIsFoundByTheNorm) {
  const GemmShape p{.m = 60, .n = 50, .k = 70};
  const Operands operands(p);
  const std::vector<float> right = by_definition(p, operands);
  std::vector<float> wrong = run(*make(p), operands);
  ASSERT_LE(test::relative_error(wrong, right), gemm_tolerance(p));
  wrong[17 * p.n + 3] -= operands.a[17 * p.k + 69] * operands.b[69 * p.n + 3];
  EXPECT_GT(test::relative_error(wrong, right), 10 * gemm_tolerance(p));
}

TEST_P(GemmContract, TwoRunsGiveEqualBits) {
  const GemmShape p{.m = 37, .n = 41, .k = 300, .bias = true};
  const Operands operands(p);
  const auto gemm = make(p);
  EXPECT_EQ(run(*gemm, operands), run(*gemm, operands));
  EXPECT_EQ(run(*gemm, operands), run(*make(p), operands));
}

TEST_P(GemmContract, OneProblemRunsOnOtherBuffers) {
  const GemmShape p{.m = 5, .n = 6, .k = 7, .bias = true};
  const auto gemm = make(p);
  Operands operands(p);
  run(*gemm, operands);
  std::ranges::reverse(operands.a);
  std::ranges::reverse(operands.bias);
  EXPECT_LE(test::relative_error(run(*gemm, operands), by_definition(p, operands)), gemm_tolerance(p));
}

TEST_P(GemmContract, WithoutAccumulationTheOldContentsDoNotMatter) {
  const GemmShape p{.m = 5, .n = 6, .k = 7};
  Operands operands(p);
  const std::vector<float> right = by_definition(p, operands);
  std::ranges::fill(operands.c, std::numeric_limits<float>::quiet_NaN());
  EXPECT_LE(test::relative_error(run(*make(p), operands), right), gemm_tolerance(p));
}

TEST_P(GemmContract, BuffersOfTheWrongLengthAreRefused) {
  const GemmShape p{.m = 2, .n = 3, .k = 4, .bias = true};
  const auto gemm = make(p);
  std::vector<float> a(8), b(12), bias(3), c(6), longer(13);
  EXPECT_NO_THROW(gemm->run(a, b, bias, c));
  EXPECT_THROW(gemm->run(longer, b, bias, c), std::invalid_argument);
  EXPECT_THROW(gemm->run(a, longer, bias, c), std::invalid_argument);
  EXPECT_THROW(gemm->run(a, b, {}, c), std::invalid_argument);
  EXPECT_THROW(gemm->run(a, b, bias, longer), std::invalid_argument);
}

TEST_P(GemmContract, AnEmptyExtentIsRefused) {
  EXPECT_THROW(make({.m = 0, .n = 1, .k = 1}), std::invalid_argument);
  EXPECT_THROW(make({.m = 1, .n = 0, .k = 1}), std::invalid_argument);
  EXPECT_THROW(make({.m = 1, .n = 1, .k = 0}), std::invalid_argument);
}

TEST_P(GemmContract, TheImplementationNamesItsBackend) {
  EXPECT_TRUE(make({.m = 2, .n = 2, .k = 2})->implementation().starts_with(GetParam()));
}

std::vector<std::string> backend_names() {
  std::vector<std::string> names;
  const Problem p{.shape = GemmShape{.m = 1, .n = 1, .k = 1}};
  for (const OpBackend& b : op_backends())
    if (b.operation == KernelKind::gemm && b.precision == p.precision && b.refusal(p).empty())
      names.emplace_back(b.name);
  return names;
}
INSTANTIATE_TEST_SUITE_P(Backends, GemmContract, testing::ValuesIn(backend_names()),
                         [](const auto& instance) { return instance.param; });

TEST(Gemm, AnUnknownBackendIsRefusedWithTheKnownOnes) {
  try {
    make_gemm({.m = 1, .n = 1, .k = 1}, "cublas");
    FAIL() << "accepted";
  } catch (const core::UsageError& e) {
    const std::string message = e.what();
    EXPECT_NE(message.find("cublas"), std::string::npos) << message;
    EXPECT_NE(message.find("onednn"), std::string::npos) << message;
    EXPECT_NE(message.find("reference"), std::string::npos) << message;
  }
}

TEST(Gemm, WhatTheLibraryRefusesIsABackendError) {
  EXPECT_THROW(make_gemm({.m = std::size_t{1} << 63, .n = 1, .k = 1}, "onednn"), core::BackendError);
}

TEST(Gemm, AThreadWithAnotherNumberOfThreadsIsRefused) {
  set_compute_threads(1);
  const GemmShape p{.m = 4, .n = 4, .k = 4};
  const auto gemm = make_gemm(p, "onednn");
  std::vector<float> a(16), b(16), c(16);
  set_compute_threads(2);
  EXPECT_THROW(gemm->run(a, b, {}, c), std::logic_error);
  set_compute_threads(1);
  EXPECT_NO_THROW(gemm->run(a, b, {}, c));
}

TEST(Gemm, TwoThreadsAgreeWithTheReference) {
  const GemmShape p{.m = 130, .n = 140, .k = 150, .activation = Activation::relu};
  const Operands operands(p);
  set_compute_threads(2);
  const std::vector<float> two = run(*make_gemm(p), operands);
  set_compute_threads(1);
  EXPECT_LE(test::relative_error(two, by_definition(p, operands)), gemm_tolerance(p));
}

TEST(Gemm, CountsTwoOperationsAMultiplyAddAndEachOperandOnce) {
  const GemmShape p{.m = 2, .n = 3, .k = 5};
  EXPECT_EQ(p.flops(), 60);
  EXPECT_EQ(prepare({.shape = p})->cost().flops, 60);
  EXPECT_EQ(prepare({.shape = p})->cost().bytes, 4 * (10 + 15 + 6));
}

TEST(RelativeError, IsTheNormOfTheDifferenceOverTheReferencesNorm) {
  const std::vector<float> reference{3, 4}, value{3, 4.5F};
  EXPECT_DOUBLE_EQ(test::relative_error(value, reference), 0.1);
  EXPECT_EQ(test::relative_error(reference, reference), 0);
  EXPECT_EQ(test::relative_error(std::vector<float>(2), std::vector<float>(2)), 0);
  EXPECT_THROW(test::relative_error(value, std::vector<float>(3)), std::invalid_argument);
}

}  // namespace
}  // namespace gradmeter::kernels
