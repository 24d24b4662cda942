// SPDX-License-Identifier: Apache-2.0
// Whole numbers of 8 bits: zero is exact, nothing of the range is more than half a quantum off, and what an operation
// packs from fp32 is what these say.
#include "kernels/number_format.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "core/random.hpp"
#include "kernels/op.hpp"

namespace gradmeter::kernels {
namespace {

const std::vector<std::pair<float, float>> ranges{{0, 3.7F}, {-1.3F, 0}, {-0.42F, 2.8F}, {-1, 1}, {-5e-4F, 100}};

/// Over the range, both ends among them.
std::vector<float> numbers_of(float least, float greatest, std::size_t n) {
  const core::Random random(7, 0x71);
  std::vector<float> x{least, greatest, 0};
  for (std::size_t i = 0; x.size() < n; ++i)
    x.push_back(static_cast<float>(least + random.uniform(i) * (greatest - static_cast<double>(least))));
  return x;
}

TEST(Quantization, PacksARangeWithinHalfAQuantumAndZeroExactly) {
  constexpr std::size_t m = 37, k = 29;
  const Problem p{.shape = GemmShape{.m = m, .n = 1, .k = k}, .precision = Precision::int8};
  if (const auto why = op_refusal(p); !why.empty()) GTEST_SKIP() << why;
  for (const auto& [least, greatest] : ranges) {
    Quantization q = quantize_range(least, greatest);
    q.weight_quanta = {1};
    const auto op = prepare(p, {.quantization = q});
    const std::vector<float> x = numbers_of(least, greatest, m * k);
    std::vector<std::uint8_t> packed(m * k);
    runtime::HostQueue queue;
    op->packing_from_fp32(0)->run(queue, "pack", {x},
                                  {runtime::Buffer(core::Element::i8, std::as_writable_bytes(std::span(packed)))});
    double worst = 0;
    for (std::size_t i = 0; i < x.size(); ++i)
      worst = std::max(worst, std::fabs((packed[i] - q.zero_point) * static_cast<double>(q.quantum) - x[i]));
    EXPECT_LE(worst, 0.5 * q.quantum * (1 + 1e-4)) << least << " to " << greatest;
    EXPECT_GT(worst, 0.4 * q.quantum) << least << " to " << greatest;
    EXPECT_EQ(packed[2], q.zero_point);
  }
}

TEST(Quantization, PacksWeightsByTheirOutputs) {
  constexpr std::size_t k = 23, n = 6;
  const Problem p{.shape = GemmShape{.m = 4, .n = n, .k = k, .transpose_b = Transpose::yes},
                  .precision = Precision::int8};
  if (const auto why = op_refusal(p); !why.empty()) GTEST_SKIP() << why;
  const core::Random random(3, 0x72);
  std::vector<float> weights(n * k);  // output 4 has none
  for (std::size_t i = 0; i < weights.size(); ++i)
    weights[i] = i / k == 4 ? 0 : static_cast<float>(random.gaussian(i) * std::pow(10, static_cast<double>(i / k)));
  Quantization q{.quantum = 1};
  q.weight_quanta.resize(n);
  raise_to_largest(weights, k, q.weight_quanta);
  for (std::size_t o = 0; o < n; ++o) {
    float largest = 0;
    for (std::size_t i = 0; i < k; ++i) largest = std::max(largest, std::fabs(weights[o * k + i]));
    EXPECT_EQ(q.weight_quanta[o], largest);
  }
  to_weight_quanta(q.weight_quanta);
  const auto op = prepare(p, {.quantization = q});
  std::vector<std::int8_t> packed(n * k);
  runtime::HostQueue queue;
  op->packing_from_fp32(1)->run(queue, "pack", {weights},
                                {runtime::Buffer(core::Element::i8, std::as_writable_bytes(std::span(packed)))});
  for (std::size_t o = 0; o < n; ++o) {
    int largest = 0;
    for (std::size_t i = o * k; i < (o + 1) * k; ++i) {
      EXPECT_LE(std::fabs(packed[i] * static_cast<double>(q.weight_quanta[o]) - weights[i]),
                0.5 * q.weight_quanta[o] * (1 + 1e-4));
      largest = std::max(largest, std::abs(packed[i]));
    }
    EXPECT_EQ(largest, o == 4 ? 0 : static_cast<int>(largest_int8_weight()));
  }
}

TEST(Quantization, RefusesARangeThatCannotBe) {
  EXPECT_THROW(quantize_range(0.5F, 1), std::invalid_argument);
  EXPECT_THROW(quantize_range(-1, -0.5F), std::invalid_argument);
  EXPECT_THROW(quantize_range(0, INFINITY), std::invalid_argument);
  EXPECT_EQ(quantize_range(0, 0).zero_point, 0);
}

}  // namespace
}  // namespace gradmeter::kernels
