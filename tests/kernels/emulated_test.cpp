// SPDX-License-Identifier: Apache-2.0
// Formats that software rounds to: their numbers one by one, and the error of a product against what is published.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "kernels/cases/kernel_case.hpp"
#include "kernels/gemm/gemm.hpp"
#include "kernels/host/library.hpp"
#include "kernels/host/threads.hpp"
#include "kernels/op.hpp"

namespace gradmeter::kernels {
namespace {

std::vector<float> gaussian(std::size_t n, std::uint64_t seed) {
  std::vector<float> x(n);
  fill_random(std::as_writable_bytes(std::span(x)), number_format(core::Element::f32), seed);
  return x;
}

std::vector<float> product(const GemmShape& s, Precision precision, const std::vector<float>& a,
                           const std::vector<float>& b) {
  std::vector<float> c(s.m * s.n);
  runtime::HostQueue queue;
  prepare({.shape = s, .precision = precision})
      ->run(queue, "gemm", {runtime::ConstBuffer(a), runtime::ConstBuffer(b)}, {runtime::Buffer(c)});
  return c;
}

class Emulated : public testing::Test {
 protected:
  void SetUp() override {
    set_compute_threads(1);
    if (!onednn_refusal().empty()) GTEST_SKIP() << onednn_refusal();
  }
};

/// A product with one, so that the operand's rounding is seen alone.
float rounded(float x, Precision precision, float largest) {
  return product({.m = 2, .n = 1, .k = 1}, precision, {x, largest}, {1}).front();
}

TEST_F(Emulated, NumbersAreThoseOfTheFormat) {
  EXPECT_EQ(rounded(1 + 0x1p-11F, Precision::fp16, 1), 1);  // ties to even
  EXPECT_EQ(rounded(1 + 0x1.8p-11F, Precision::fp16, 1), 1 + 0x1p-10F);
  EXPECT_EQ(rounded(0x1p-26F, Precision::fp16, 1), 0);
  EXPECT_EQ(rounded(65536, Precision::fp16, 1), std::numeric_limits<float>::infinity());
  // 448 and 57344 are the largest of fp8: with them as an operand's largest number its scale is one.
  EXPECT_EQ(rounded(17, Precision::fp8_e4m3, 448), 16);
  EXPECT_EQ(rounded(19, Precision::fp8_e4m3, 448), 20);
  EXPECT_EQ(rounded(9, Precision::fp8_e5m2, 57344), 8);
  EXPECT_EQ(rounded(11, Precision::fp8_e5m2, 57344), 12);
  EXPECT_EQ(rounded(2.6F, Precision::int4, 7), 3);
  EXPECT_EQ(rounded(-0.4F, Precision::int4, 7), 0);
  for (const auto p : {Precision::fp16, Precision::fp8_e4m3, Precision::fp8_e5m2, Precision::int4})
    EXPECT_TRUE(std::isnan(rounded(std::numeric_limits<float>::quiet_NaN(), p, 1))) << name(p) << " hides a NaN";
}

/// Relative error in the Frobenius norm of a product of Gaussian numbers over k = 1024: fp16 2.9e-4, e4m3 3.7e-2, e5m2
/// 7.4e-2, int4 0.28 where only operands are rounded.
TEST_F(Emulated, AProductsErrorIsThatOfTheFormat) {
  constexpr GemmShape s{.m = 24, .n = 40, .k = 1024};
  const auto a = gaussian(s.m * s.k, 1), b = gaussian(s.k * s.n, 2);
  const auto exact = product(s, Precision::fp32, a, b);
  const auto error = [&](Precision p) {
    const auto found = product(s, p, a, b);
    double off = 0, size = 0;
    for (std::size_t i = 0; i < exact.size(); ++i) {
      off += std::pow(double{found[i]} - double{exact[i]}, 2);
      size += std::pow(double{exact[i]}, 2);
    }
    return std::sqrt(off / size);
  };
  EXPECT_NEAR(error(Precision::fp16), 3.5e-4, 0.8e-4);  // the result is rounded too
  EXPECT_NEAR(error(Precision::fp8_e4m3), 3.7e-2, 0.5e-2);
  EXPECT_NEAR(error(Precision::fp8_e5m2), 7.4e-2, 1e-2);
  EXPECT_NEAR(error(Precision::int4), 0.28, 0.06);
}

TEST_F(Emulated, InputsStayAsTheyWere) {
  const std::vector<float> a{1.2345F, -0.7F}, b{3.3F, 0.1F}, before = a;
  (void)product({.m = 1, .n = 1, .k = 2}, Precision::int4, a, b);
  EXPECT_EQ(a, before);
}

TEST_F(Emulated, NoKernelCaseTimesThem) {
  for (const auto p : {Precision::fp16, Precision::fp8_e4m3, Precision::fp8_e5m2, Precision::int4}) {
    EXPECT_TRUE(info(p).emulated);
    EXPECT_NE(kernel_case_refusal({.shape = GemmShape{4, 4, 4}, .precision = p}), "");
    EXPECT_EQ(op_refusal({.shape = GemmShape{4, 4, 4}, .precision = p}), "");
  }
}

}  // namespace
}  // namespace gradmeter::kernels
