// SPDX-License-Identifier: Apache-2.0
#include "kernels/host/roofline.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <stdexcept>
#include <vector>

#include "kernels/gemm/gemm.hpp"
#include "kernels/host/threads.hpp"

namespace gradmeter::kernels {
namespace {

// What any processor of this century does and none yet reaches: the order of magnitude and the unit are right.
TEST(Peak, OfAMatrixProductIsARateAProcessorCanHave) {
  set_compute_threads(1);
  const double peak = measure_gemm_peak(core::Seconds{0.05}).value;
  EXPECT_GT(peak, 1e9);
  EXPECT_LT(peak, 1e13);
}

TEST(Peak, IsNotBelowOneOrdinaryProduct) {
  set_compute_threads(1);
  const GemmShape p{.m = 512, .n = 512, .k = 512};
  const auto gemm = make_gemm(p);
  std::vector<float> a(p.m * p.k, 0.5F), b(p.k * p.n, 0.25F), c(p.m * p.n);
  gemm->run(a, b, {}, c);
  const auto start = std::chrono::steady_clock::now();
  gemm->run(a, b, {}, c);
  const double rate = p.flops() / std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  // Half: other work may share the machine while one of the two is measured.
  EXPECT_GT(measure_gemm_peak(core::Seconds{0.3}).value, 0.5 * rate);
}

TEST(Peak, ACopyHasARateAMemoryCanHave) {
  const double rate = measure_copy_bandwidth(std::size_t{1} << 22, core::Seconds{0.02}).value;
  EXPECT_GT(rate, 1e8);
  EXPECT_LT(rate, 1e13);
}

TEST(Peak, NothingToCopyIsRefused) {
  EXPECT_THROW(measure_copy_bandwidth(0, core::Seconds{0.01}), std::invalid_argument);
}

}  // namespace
}  // namespace gradmeter::kernels
