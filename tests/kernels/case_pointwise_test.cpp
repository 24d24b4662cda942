// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "core/random.hpp"
#include "kernels/cases/kernel_case.hpp"
#include "kernels/pointwise/case.hpp"
#include "support/instruction_sets.hpp"
#include "support/kernel_cases.hpp"

namespace gradmeter::kernels {
namespace {

class PointwiseCases : public testing::TestWithParam<PointwiseKind> {};

TEST_P(PointwiseCases, AreRightOnRandomLengthsFusedAndUnfusedAndFindOneWrongElement) {
  const core::Random random(31, 0);
  tests::on_every_target([&] {
    for (std::uint64_t i = 0; i < 20; ++i) {
      const std::size_t n = 1 + random.below(i, i < 12 ? 40 : 400);
      tests::expect_right_and_error_found({.shape = PointwiseShape{GetParam(), n, true}});
      tests::expect_right_and_error_found({.shape = PointwiseShape{GetParam(), n, false}});
      // In bf16, an update of few numbers that is left out may be less than their rounding.
      tests::expect_right_and_error_found(
          {.shape = PointwiseShape{GetParam(), 40 + n, true}, .precision = Precision::bf16});
    }
  });
}

TEST_P(PointwiseCases, FindOneWrongElementAmongFewOfMany) {
  tests::expect_right_and_error_found({.shape = PointwiseShape{GetParam(), 200001, true}}, 1000);
}

TEST_P(PointwiseCases, StayRightHoweverOftenTheyHaveRun) {
  for (const bool fused : {true, false}) {
    const auto kernel_case = make_kernel_case({.shape = PointwiseShape{GetParam(), 1000, fused}}, {});
    for (int i = 0; i < 200; ++i) kernel_case->run(0);
    EXPECT_TRUE(kernel_case->check(1e9, false).right());
  }
}

TEST_P(PointwiseCases, AreRightAfterAsManyRunsAsTheCheckIsTold) {
  const auto kernel_case = make_kernel_case({.shape = PointwiseShape{GetParam(), 100, true}}, {.sets = 2});
  const auto check = [&](std::size_t runs, std::size_t told) {
    const CheckedCall call{.set = 1, .runs = told, .flops_at_most = 1e9};
    kernel_case->prepare_check(call);
    for (std::size_t i = 0; i < runs; ++i) kernel_case->run(0), kernel_case->run(1);
    return kernel_case->finish_check(call).right();
  };
  EXPECT_TRUE(check(1, 1)) << "runs of the other set do not count";
  EXPECT_TRUE(check(3, 3));
  EXPECT_FALSE(check(0, 1));
  EXPECT_FALSE(check(3, 6));
  EXPECT_FALSE(check(6, 3));
}

INSTANTIATE_TEST_SUITE_P(Kinds, PointwiseCases,
                         testing::Values(PointwiseKind::sgd, PointwiseKind::momentum, PointwiseKind::adam,
                                         PointwiseKind::lstm_cell),
                         [](const auto& instance) {
                           std::string text(name(instance.param));
                           std::erase(text, '-');
                           return text;
                         });

TEST(PointwiseCase, WhatCannotBeHadIsRefusedWithTheReason) {
  const auto refusal = [](PointwiseShape s, Pass pass, Precision precision) {
    return kernel_case_refusal({.shape = s, .pass = pass, .precision = precision});
  };
  const PointwiseShape fused{PointwiseKind::sgd, 10, true}, unfused{PointwiseKind::sgd, 10, false};
  EXPECT_EQ(refusal(fused, Pass::forward, Precision::bf16), "");
  EXPECT_NE(refusal(unfused, Pass::forward, Precision::bf16).find("fused alone"), std::string::npos);
  EXPECT_NE(refusal(fused, Pass::backward_data, Precision::fp32).find("one pass"), std::string::npos);
  EXPECT_NE(refusal({PointwiseKind::sgd, 0, true}, Pass::forward, Precision::fp32).find("at least 1"),
            std::string::npos);
  EXPECT_NE(refusal(fused, Pass::forward, Precision::int8).find("int8"), std::string::npos);
}

// Elements 0, 9, 18 … are at equal distances, and element 10 is never among them.
TEST(PointwiseCase, CheckedElementsFollowFromTheSeed) {
  const auto damaged = [](PointwiseKind kind, std::span<const runtime::Buffer> arrays) {
    update_fp32_on_device(kind, arrays);
    arrays[0].values<float>()[10] += 1;
  };
  const auto kernel_case =
      make_device_pointwise_case({.shape = PointwiseShape{PointwiseKind::sgd, 64, true}}, {}, damaged, "damaged");
  int found = 0;
  constexpr int draws = 200;
  for (int i = 0; i < draws; ++i) {
    const CheckedCall call{.flops_at_most = 8 * 50, .seed = static_cast<std::uint64_t>(i)};
    kernel_case->prepare_check(call);
    kernel_case->run(0);
    found += !kernel_case->finish_check(call).right();
  }
  EXPECT_GT(found, 0);
  EXPECT_LT(found, draws / 2);
}

// What the loops of cases/pointwise.cpp read and write: an array is counted once for each pass that it is in.
TEST(PointwiseCase, BytesAreThoseOfItsPasses) {
  const auto arrays = [](PointwiseKind kind, bool fused) {
    return bytes({.shape = PointwiseShape{kind, 1000, fused}}) / 4000;
  };
  EXPECT_EQ(arrays(PointwiseKind::sgd, true), 3);
  EXPECT_EQ(arrays(PointwiseKind::sgd, false), 2 + 3);
  EXPECT_EQ(arrays(PointwiseKind::momentum, true), 5);
  EXPECT_EQ(arrays(PointwiseKind::momentum, false), 2 + 3 + 2 + 3);
  EXPECT_EQ(arrays(PointwiseKind::adam, true), 7);
  EXPECT_EQ(arrays(PointwiseKind::adam, false), 2 + 2 + 3 + 2 + 2 + 2 + 3 + 2 + 2 + 3 + 2 + 3);
  EXPECT_EQ(arrays(PointwiseKind::lstm_cell, true), 7);
  EXPECT_EQ(arrays(PointwiseKind::lstm_cell, false), 4 * 2 + 3 * 3 + 2 + 3);
}

}  // namespace
}  // namespace gradmeter::kernels
