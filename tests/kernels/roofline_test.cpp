// SPDX-License-Identifier: Apache-2.0
#include "kernels/host/roofline.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "kernels/host/threads.hpp"
#include "support/instruction_sets.hpp"
#include "support/sanitized.hpp"

namespace gradmeter::kernels {
namespace {

// No product of a library is faster than the multipliers. Both are maxima, so measuring again only raises them. The
// limit gets a few more tries, since other load on the machine may have lowered it.
TEST(Roofline, NoMatrixProductIsFasterThanTheMultipliers) {
  if (test::sanitized) GTEST_SKIP() << "our loop is instrumented and the library's is not: their rates do not compare";
  set_compute_threads(1);
  const double product = measure_gemm_peak(core::Seconds{0.1}).value;
  double roof = 0;
  for (int i = 0; i < 50 && 1.05 * roof < product; ++i)
    roof = std::max(roof, measure_fma_peak(core::Seconds{0.03}).value);
  EXPECT_LE(product, 1.05 * roof);
  EXPECT_GT(product, 0.2 * roof);  // a limit far above what products reach would be useless
}

TEST(Roofline, APrecisionHasAMultipleOfTheMultipliersThatIsBounded) {
  EXPECT_GT(product_rate_bound(Precision::fp32), 1);
  EXPECT_GE(product_rate_bound(Precision::bf16), product_rate_bound(Precision::fp32));
  EXPECT_GE(product_rate_bound(Precision::int8), product_rate_bound(Precision::bf16));
  EXPECT_LT(product_rate_bound(Precision::int8), 50);
}

TEST(Roofline, EveryInstructionSetHasItsRoofOnEveryNumberOfThreads) {
  tests::on_every_target([] {
    EXPECT_GT(measure_fma_peak(core::Seconds{0.001}).value, 1e7);
    EXPECT_GT(measure_memory(core::Seconds{0.001}, std::size_t{1} << 22).triad.value, 1e7);
  });
}

TEST(Roofline, ReadingOnceMissesNothing) {
  tests::on_every_target([] {
    for (const std::size_t n : {0u, 1u, 15u, 129u, 100'000u, 1'000'001u}) {
      std::vector<float> values(n);
      double sum = 0;
      for (std::size_t i = 0; i < n; ++i) values[i] = static_cast<float>(i % 7) - 3, sum += values[i];
      EXPECT_EQ(read_once(values), sum) << n;  // small whole numbers: exact
    }
  });
}

TEST(Roofline, MemoryHasARateThatMemoriesHave) {
  const MemoryRates rates = measure_memory(core::Seconds{0.02}, std::size_t{1} << 24);
  for (const auto rate : {rates.triad, rates.update, rates.read}) {
    EXPECT_GT(rate.value, 1e8);
    EXPECT_LT(rate.value, 1e13);
    EXPECT_LE(rate.value, rates.best().value);
  }
}

TEST(Roofline, APassTouchesMoreThanTheCacheHolds) {
  constexpr std::size_t mib = std::size_t{1} << 20;
  EXPECT_GE(memory_pass_bytes(), 64 * mib);
  EXPECT_LE(memory_pass_bytes(), 512 * mib);
  EXPECT_EQ(memory_pass_bytes(32 * mib), 128 * mib) << "a known cache counts, whatever the C library says";
  EXPECT_EQ(memory_pass_bytes(mib), 64 * mib);
  EXPECT_EQ(memory_pass_bytes(1024 * mib), 512 * mib);
}

}  // namespace
}  // namespace gradmeter::kernels
