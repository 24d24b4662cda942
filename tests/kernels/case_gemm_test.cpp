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
