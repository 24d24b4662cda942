// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "core/format.hpp"
#include "core/random.hpp"
#include "kernels/cases/kernel_case.hpp"

namespace gradmeter::kernels {
namespace {

/// Ragged and small; the same list every time.
std::vector<GemmShape> shapes() {
  const core::Random random(7, 1);
  std::vector<GemmShape> out{{1, 1, 1}, {1, 33, 5}, {17, 1, 64}};
  for (std::uint64_t i = 0; out.size() < 20; i += 5) {
    GemmShape s{1 + random.below(i, 40), 1 + random.below(i + 1, 70), 1 + random.below(i + 2, 90)};
    if (random.below(i + 3, 2)) s.transpose_a = Transpose::yes;
    if (random.below(i + 4, 2)) s.transpose_b = Transpose::yes;
    out.push_back(s);
  }
  return out;
}

class LnsCases : public ::testing::TestWithParam<Precision> {};

TEST_P(LnsCases, AreRightOnRaggedShapesAndEveryPlantedErrorIsFound) {
  for (const GemmShape& s : shapes()) {
    const Problem p{.shape = s, .precision = GetParam()};
    const auto kernel_case = make_kernel_case(p, {.sets = 2});
    const KernelCaseCheck found = kernel_case->check(1e9, false);
    EXPECT_TRUE(found.right()) << text(p.shape) << " worst " << found.worst;
    EXPECT_LT(found.error, info(GetParam()).logarithm_bits < 8 ? 0.6 : 0.2) << text(p.shape);
    EXPECT_FALSE(kernel_case->check(1e9, true).right()) << text(p.shape);
    kernel_case->run(1);
  }
}

TEST_P(LnsCases, RefusePackedWeightsAndBackwardPasses) {
  GemmShape packed{4, 4, 4};
  packed.packed = true;
  EXPECT_NE(kernel_case_refusal({.shape = packed, .precision = GetParam()}), "");
  EXPECT_NE(kernel_case_refusal({.shape = GemmShape{4, 4, 4}, .pass = Pass::backward_data, .precision = GetParam()}),
            "");
  EXPECT_EQ(kernel_case_refusal({.shape = GemmShape{4, 4, 4}, .precision = GetParam()}), "");
}

INSTANTIATE_TEST_SUITE_P(Precisions, LnsCases,
                         ::testing::Values(Precision::lns16, Precision::lns16_linear, Precision::lns16_f7,
                                           Precision::lns16_f6),
                         [](const auto& param) {
                           std::string text(name(param.param));
                           std::ranges::replace(text, '-', '_');
                           return text;
                         });

}  // namespace
}  // namespace gradmeter::kernels
