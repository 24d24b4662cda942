// SPDX-License-Identifier: Apache-2.0
// Kernel cases on a GPU: right by the same checks as the host's, and not right once one element is made wrong.
#include <gtest/gtest.h>

#include <algorithm>

#include "kernels/cases/kernel_case.hpp"
#include "kernels/cuda/backends.hpp"
#include "kernels/op.hpp"
#include "runtime/cuda/device.hpp"
#include "support/device_seeds.hpp"
#include "support/kernel_cases.hpp"

namespace gradmeter::kernels {
namespace {

using enum Precision;

class DeviceCases : public testing::Test {
 protected:
  static void SetUpTestSuite() { add_cuda_ops(); }

  void expect_right(const Problem& p) {
    if (!kernel_case_refusal(p, device_).empty()) return;
    ++taken_;
    tests::expect_right_and_error_found(p, 1e9, device_);
  }

  runtime::CudaDevice device_{0};
  int taken_ = 0;
};

TEST_F(DeviceCases, OfProductsAreRight) {
  test::each_device_seed<2>([&] {
    for (const Precision p : {fp32, bf16, fp16, fp8_e4m3, fp8_e5m2, int8, lns16, lns16_linear})
      for (const Transpose b : {Transpose::no, Transpose::yes})
        expect_right({.shape = GemmShape{.m = 17, .n = 24, .k = 40, .transpose_b = b}, .precision = p});
    expect_right({.shape = GemmShape{.m = 9, .n = 8, .k = 16, .packed = true}});
    expect_right({.shape = GemmShape{.m = 9, .n = 8, .k = 16, .count = 3}});
  });
  EXPECT_GE(taken_, 10);
}

TEST_F(DeviceCases, OfConvolutionsAreRightInEveryPass) {
  test::each_device_seed<2>([&] {
    for (const Precision p : {fp32, bf16})
      for (const Pass pass : {Pass::forward, Pass::backward_data, Pass::backward_weights})
        expect_right({.shape = ConvShape{.width = 7,
                                         .height = 6,
                                         .channels = 3,
                                         .batch = 2,
                                         .filters = 5,
                                         .filter_width = 3,
                                         .filter_height = 3,
                                         .pad_width = 1,
                                         .pad_height = 1},
                      .pass = pass,
                      .precision = p});
  });
  EXPECT_GE(taken_, 6);
}

TEST_F(DeviceCases, OfRecurrentLayersAreRightForwardAndBackward) {
  test::each_device_seed<2>([&] {
    for (const Precision p : {fp32, bf16})
      for (const Cell cell : {Cell::vanilla, Cell::lstm, Cell::gru})
        for (const Pass pass : {Pass::forward, Pass::backward_data})
          expect_right({.shape = RnnShape{cell, 20, 3, 3, 7}, .pass = pass, .precision = p});
  });
  EXPECT_GE(taken_, 12);
}

// Of more rows and steps than the reference can afford, the check runs the backward pass on chosen gradients.
TEST_F(DeviceCases, OfRecurrentLayersAreCheckedInPart) {
  const Problem p{.shape = RnnShape{Cell::lstm, 24, 12, 6}, .pass = Pass::backward_data};
  tests::expect_right_and_error_found(p, 4e5, device_);
}

TEST_F(DeviceCases, OfOptimizersAreRight) {
  test::each_device_seed<2>([&] {
    for (const Precision p : {fp32, bf16})
      for (const PointwiseKind kind : {PointwiseKind::sgd, PointwiseKind::momentum, PointwiseKind::adam})
        expect_right({.shape = PointwiseShape{kind, 1003, true}, .precision = p});
  });
  EXPECT_GE(taken_, 6);
}

TEST_F(DeviceCases, OfSparseProductsAreRightWhereThereAreAny) {
  for (const std::size_t n : {1, 30}) expect_right({.shape = SparseShape{.m = 33, .n = n, .k = 50, .sparsity = 0.8}});
  EXPECT_FALSE(
      kernel_case_refusal(
          {.shape = SparseShape{.m = 33, .n = 4, .k = 50, .sparsity = 0.8, .format = SparseFormat::blocked}}, device_)
          .empty());
}

TEST_F(DeviceCases, AreNoneOfTheHosts) {
  const auto cases = kernel_cases(device_);
  EXPECT_FALSE(cases.empty());
  for (const KernelCaseInfo& row : cases) EXPECT_TRUE(row.device == "cuda" && row.backend != "host") << row.backend;
  EXPECT_TRUE(op_refusal({.shape = GemmShape{4, 4, 4}, .precision = int4}, device_).empty()) << "a definition trains";
  EXPECT_NE(kernel_case_refusal({.shape = GemmShape{4, 4, 4}, .precision = int4}, device_).find("on cuda"),
            std::string::npos);
  const Problem cell{.shape = PointwiseShape{PointwiseKind::lstm_cell, 10, true}};
  EXPECT_NE(kernel_case_refusal(cell, device_).find("recurrent"), std::string::npos);
  const Problem unfused{.shape = PointwiseShape{PointwiseKind::sgd, 10, false}};
  EXPECT_NE(kernel_case_refusal(unfused, device_).find("fused"), std::string::npos);
}

}  // namespace
}  // namespace gradmeter::kernels
