#include <gtest/gtest.h>

#include "core/error.hpp"
#include "core/random.hpp"
#include "kernels/cases/kernel_case.hpp"
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
  EXPECT_THROW(make_kernel_case(sparse({.m = 0, .n = 1, .k = 1}), {}), core::UsageError);
}

}  // namespace
}  // namespace gradmeter::kernels
