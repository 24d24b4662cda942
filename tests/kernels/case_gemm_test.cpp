// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "core/random.hpp"
#include "kernels/cases/kernel_case.hpp"
#include "kernels/host/threads.hpp"
#include "support/kernel_cases.hpp"

namespace gradmeter::kernels {
namespace {

class GemmCases : public testing::TestWithParam<Precision> {
 protected:
  void SetUp() override {
    set_compute_threads(1);
    const std::string why = kernel_case_refusal(problem({.m = 8, .n = 8, .k = 8}));
    if (!why.empty()) GTEST_SKIP() << why;
  }
  static Problem problem(const GemmShape& s) { return {.shape = s, .precision = GetParam()}; }
};

// Plain, transposed in all ways, and with packed weights, on 24 ragged shapes.
TEST_P(GemmCases, AreRightOnRandomRaggedShapesAndFindOneWrongElement) {
  const core::Random random(41, 0);
  for (std::uint64_t i = 0; i < tests::random_shapes; ++i)
    for (const auto a : {Transpose::no, Transpose::yes})
      for (const auto b : {Transpose::no, Transpose::yes})
        for (const bool packed : {false, true})
          tests::expect_right_and_error_found(problem({.m = 1 + random.below(3 * i, 90),
                                                       .n = 1 + random.below(3 * i + 1, 90),
                                                       .k = 1 + random.below(3 * i + 2, 200),
                                                       .transpose_a = a,
                                                       .transpose_b = b,
                                                       .packed = packed}));
}

TEST_P(GemmCases, AreRightOnThinShapes) {
  const std::size_t shapes[][3] = {{1, 1, 1}, {1, 70, 33}, {33, 1, 70}, {70, 33, 1}, {1, 300, 140}};
  for (const auto& [m, n, k] : shapes)
    for (const bool packed : {false, true})
      tests::expect_right_and_error_found(problem({.m = m, .n = n, .k = k, .packed = packed}));
}

TEST_P(GemmCases, AreRightOfSeveralProductsAtOnce) {
  for (const auto a : {Transpose::no, Transpose::yes})
    for (const auto b : {Transpose::no, Transpose::yes})
      for (const std::size_t count : {2u, 7u})
        tests::expect_right_and_error_found(
            problem({.m = 17, .n = 9, .k = 33, .transpose_a = a, .transpose_b = b, .count = count}));
}

TEST_P(GemmCases, FindOneWrongElementAmongFewRowsOfMany) {
  tests::expect_right_and_error_found(problem({.m = 2000, .n = 40, .k = 300}), 1e4);
}

INSTANTIATE_TEST_SUITE_P(Precisions, GemmCases, testing::Values(Precision::fp32, Precision::bf16, Precision::int8),
                         [](const auto& instance) { return std::string(name(instance.param)); });

TEST(GemmCase, ANumberThatIsNoneIsFoundAmongOthers) {
  ElementCheck found;
  for (const double result : {1.0, std::nan(""), 1.0, 1.0}) found.add(result, 1, 1e-3);
  EXPECT_FALSE(found.verdict().right());
}

/// A bound that grows faster than the sum itself would allow any result.
TEST(GemmCase, AWrongSumOfMillionsOfTermsIsFound) {
  set_compute_threads(1);
  const auto c =
      make_kernel_case({.shape = GemmShape{.m = 1, .n = 2, .k = 8'000'000, .transpose_b = Transpose::yes}}, {});
  const KernelCaseCheck check = c->check(1e9, false);
  EXPECT_TRUE(check.right()) << check.worst;
  EXPECT_GT(c->check(1e9, true).worst, 100);
}

/// The order of additions that loses most: one after another.
TEST(GemmCase, ASumThatIsRoundedAfterEachAdditionIsWithinItsBound) {
  const core::Random random(5, 0);
  double worst = 0;
  for (std::uint64_t i = 0; i < 300; ++i) {
    const std::size_t n = i % 10 == 0 ? 200'000 : 1 + random.below(i, 3000);
    const core::Random draws(i, 1);
    float found = 0;
    ReferenceSum sum;
    for (std::size_t l = 0; l < n; ++l) {
      const auto a = static_cast<float>(draws.uniform(2 * l) - 0.5),
                 b = static_cast<float>(draws.uniform(2 * l + 1) - 0.5);
      found = std::fma(a, b, found);
      sum.add(a, b);
    }
    const double allowed = allowed_distance_of_random_terms(sum, Precision::fp32);
    EXPECT_LE(allowed, allowed_distance(sum, Precision::fp32));
    worst = std::max(worst, std::fabs(found - sum.value) / allowed);
  }
  EXPECT_LT(worst, 0.7);
  EXPECT_EQ(
      allowed_distance_of_random_terms({.value = 1, .absolute_sum = 1, .squares = 1, .terms = 1}, Precision::int8), 0);
}

/// Extents whose product is more than 64 bits hold: they need more memory than there is, not little.
TEST(KernelCaseBytes, DoNotWrap) {
  constexpr std::size_t huge = std::size_t{1} << 32;
  const auto bytes_of = [](const ProblemShape& s, Pass pass = Pass::forward) {
    return kernel_case_bytes({.shape = s, .pass = pass});
  };
  constexpr std::size_t much = std::size_t{1} << 60;
  EXPECT_GE(bytes_of(GemmShape{.m = huge, .n = huge, .k = huge}), much);
  const RnnShape layer{.cell = Cell::lstm, .hidden = huge, .batch = huge, .steps = huge};
  EXPECT_GE(bytes_of(layer), much);
  EXPECT_GE(bytes_of(layer, Pass::backward_data), much);
  EXPECT_GE(bytes_of(SparseShape{.m = huge, .n = huge, .k = std::size_t{1} << 30}), much);
  EXPECT_GE(bytes_of(PointwiseShape{.elements = std::size_t{1} << 62}), much);
  const ConvShape conv{
      .width = huge, .height = huge, .channels = 1, .batch = 1, .filters = 1, .filter_width = 1, .filter_height = 1};
  EXPECT_EQ(kernel_case_refusal({.shape = conv}), "") << "its extents are not 0, though their product wraps to it";
  EXPECT_GE(bytes_of(conv), much);
}

TEST(GemmCase, WhatCannotBeHadIsRefusedWithTheReason) {
  const GemmShape s{.m = 1, .n = 1, .k = 1};
  EXPECT_EQ(kernel_case_refusal({.shape = s}), "");
  EXPECT_NE(kernel_case_refusal({.shape = s, .pass = Pass::backward_data}).find("one pass"), std::string::npos);
  const GemmShape packed{.m = 1, .n = 1, .k = 1, .packed = true, .count = 2};
  EXPECT_NE(kernel_case_refusal({.shape = packed}).find("no packed operand"), std::string::npos);
  EXPECT_NE(kernel_case_refusal({.shape = GemmShape{.m = 0, .n = 1, .k = 1}}).find("at least 1"), std::string::npos);
}

}  // namespace
}  // namespace gradmeter::kernels
