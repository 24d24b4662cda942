// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <set>
#include <stdexcept>
#include <vector>

#include "core/element.hpp"
#include "core/error.hpp"
#include "core/random.hpp"
#include "kernels/cases/kernel_case.hpp"
#include "kernels/sparse/sparse.hpp"
#include "support/instruction_sets.hpp"
#include "support/kernel_cases.hpp"

namespace gradmeter::kernels {
namespace {

Problem sparse(SparseShape s) { return {.shape = s}; }

class SparseCases : public testing::TestWithParam<SparseFormat> {};

TEST_P(SparseCases, AreRightOnRandomRaggedShapesAndFindOneWrongElement) {
  const core::Random random(21, 0);
  tests::on_every_target([&] {
    for (std::uint64_t i = 0; i < tests::random_shapes; ++i)
      tests::expect_right_and_error_found(sparse({.m = 1 + random.below(4 * i, 80),
                                                  .n = 1 + random.below(4 * i + 1, 70),
                                                  .k = 1 + random.below(4 * i + 2, 200),
                                                  .sparsity = random.uniform(4 * i + 3),
                                                  .format = GetParam()}));
  });
}

TEST_P(SparseCases, FindOneWrongElementAmongFewRowsOfMany) {
  tests::expect_right_and_error_found(sparse({.m = 3000, .n = 4, .k = 700, .sparsity = 0.95, .format = GetParam()}),
                                      1e4);
}

TEST_P(SparseCases, FindAWrongElementEvenWhereEverythingIsZero) {
  tests::expect_right_and_error_found(sparse({.m = 20, .n = 3, .k = 10, .sparsity = 1, .format = GetParam()}));
}

INSTANTIATE_TEST_SUITE_P(Formats, SparseCases, testing::Values(SparseFormat::csr, SparseFormat::blocked),
                         [](const auto& instance) { return std::string(name(instance.param)); });

TEST(SparseCase, OfTwoOfFourIsRightAndFindsOneWrongElement) {
  const SparseShape s{.m = 33, .n = 9, .k = 52, .sparsity = 0.5, .format = SparseFormat::two_of_four};
  tests::expect_right_and_error_found(sparse(s));
  // Held as csr: 858 numbers with their columns, B and C.
  EXPECT_EQ(kernel_case_bytes(sparse(s)), 858u * 8 + 52 * 9 * 4 + 33 * 9 * 4);
  EXPECT_EQ(held_bytes(sparse(s)), 858 * 4.25 + 52 * 9 * 4 + 33 * 9 * 4);
  EXPECT_NEAR(bytes(sparse(s)), held_bytes(sparse(s)), 1e-3) << "nearly each row of B meets an entry";
  EXPECT_EQ(flops(sparse(s)), 2 * 858 * 9) << "zeros are not counted";
}

/// Most rows have no entry, so their elements are zero whatever the data.
TEST(SparseCase, ZerosOfRowsWithoutEntriesAreNotSuspicious) {
  for (const SparseFormat format : {SparseFormat::csr, SparseFormat::blocked}) {
    const SparseShape s{.m = 4096, .n = 16, .k = 32, .sparsity = 0.99, .format = format};
    EXPECT_EQ(make_kernel_case(sparse(s), {})->check(1e9, false).zero_share, 0) << name(format);
    const SparseOperands x = random_sparse_operands(s, Precision::fp32, 5);
    const auto nothing = [](std::size_t) { return 0.0; };
    EXPECT_EQ(checked_product(s, Precision::fp32, x, nothing, {.flops_at_most = 1e9}).zero_share, 1);
  }
}

TEST(SparseCase, OperandsAreNumbersOfThePrecision) {
  const SparseShape s{.m = 20, .n = 30, .k = 40, .sparsity = 0.5, .format = SparseFormat::two_of_four};
  for (const Precision p : {Precision::fp32, Precision::bf16, Precision::fp16, Precision::fp8_e4m3, Precision::int8}) {
    const SparseOperands x = random_sparse_operands(s, p, 5);
    std::set<float> different;
    const auto expect_stored = [&](float v) {
      std::array<std::byte, 4> memory{};
      core::store(sparse_element(p), memory.data(), v);
      ASSERT_EQ(core::load(sparse_element(p), memory.data()), v) << name(p);
      different.insert(v);
    };
    for (const float v : x.a.values) expect_stored(v);
    for (const float v : x.b) expect_stored(v);
    EXPECT_GT(different.size(), 100u) << name(p);
    EXPECT_EQ(x.b, random_sparse_operands(s, p, 5).b);
  }
  EXPECT_THROW(sparse_element(Precision::lns16), std::logic_error);
}

TEST(SparseCase, AResultOfAnotherPrecisionIsCheckedByItsRoundoff) {
  const SparseShape s{.m = 24, .n = 16, .k = 128, .sparsity = 0.5, .format = SparseFormat::two_of_four};
  for (const Precision p : {Precision::bf16, Precision::int8}) {
    const SparseOperands x = random_sparse_operands(s, p, 5);
    std::vector<double> c(s.m * s.n);
    for (std::size_t i = 0; i < s.m; ++i)
      for (std::size_t e = x.a.starts[i]; e < x.a.starts[i + 1]; ++e)
        for (std::size_t j = 0; j < s.n; ++j)
          c[i * s.n + j] += double{x.a.values[e]} * x.b[static_cast<std::size_t>(x.a.columns_of[e]) * s.n + j];
    const auto worst = [&](double off) {
      const auto at = [&](std::size_t i) { return i == 5 ? c[i] + off : c[i]; };
      return checked_product(s, p, x, at, {.flops_at_most = 1e9}).worst;
    };
    EXPECT_EQ(worst(0), 0) << name(p);
    const double rounding = p == Precision::int8 ? 0 : 0x1p-9 * std::fabs(c[5]);
    EXPECT_LE(worst(rounding), 1) << name(p);
    EXPECT_GT(worst(p == Precision::int8 ? 1 : 0x1p-5 * std::fabs(c[5]) + 1e-3), 1) << name(p);
  }
}

TEST(SparseCase, WhatCannotBeHadIsRefusedWithTheReason) {
  const auto refusal = [](SparseShape s, Pass pass = Pass::forward, Precision precision = Precision::fp32) {
    return kernel_case_refusal({.shape = s, .pass = pass, .precision = precision});
  };
  EXPECT_EQ(refusal({.m = 1, .n = 1, .k = 1}), "");
  EXPECT_NE(refusal({.m = 0, .n = 1, .k = 1}).find("at least 1"), std::string::npos);
  EXPECT_NE(refusal({.m = 1, .n = 1, .k = 1, .sparsity = 1.5}).find("1.5"), std::string::npos);
  EXPECT_NE(refusal({.m = 1, .n = 1, .k = std::size_t{1} << 31}).find("2^31"), std::string::npos);
  EXPECT_NE(refusal({.m = 1, .n = 1, .k = 1}, Pass::backward_data).find("one pass"), std::string::npos);
  EXPECT_NE(refusal({.m = 1, .n = 1, .k = 1}, Pass::forward, Precision::bf16).find("bf16"), std::string::npos);
  const auto of_four = [&](std::size_t k, double sparsity) {
    return refusal({.m = 1, .n = 1, .k = k, .sparsity = sparsity, .format = SparseFormat::two_of_four});
  };
  EXPECT_EQ(of_four(4, 0.5), "");
  EXPECT_NE(of_four(4, 0.9).find("0.5, not 0.9"), std::string::npos);
  EXPECT_NE(of_four(6, 0.5).find("multiple of 4"), std::string::npos);
  EXPECT_THROW(make_kernel_case(sparse({.m = 0, .n = 1, .k = 1}), {}), core::UsageError);
}

}  // namespace
}  // namespace gradmeter::kernels
