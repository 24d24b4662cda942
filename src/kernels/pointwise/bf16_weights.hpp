// SPDX-License-Identifier: Apache-2.0
// Updates of weights kept in bf16, one number at a time, for the host's loops and a GPU's threads.
#pragma once
#include <cstdint>

#include "core/host_device.hpp"

namespace gradmeter::kernels {

/// Adds `added` to the bits of x, so that a carry may reach the upper half, and clears the lower half. Infinities and
/// NaNs stay.
GRADMETER_HOST_DEVICE constexpr float bf16_after_adding(float x, std::uint32_t added) {
  const auto bits = core::bits_as<std::uint32_t>(x);
  const bool finite = (bits & 0x7f800000) != 0x7f800000;
  return core::bits_as<float>(finite ? (bits + added) & 0xffff0000u : bits);
}
/// Rounds to nearest, ties to even.
GRADMETER_HOST_DEVICE constexpr float bf16_nearest(float x) {
  return bf16_after_adding(x, 0x7fff + (core::bits_as<std::uint32_t>(x) >> 16 & 1));
}

/// w becomes `target` minus the carry, rounded to bf16; the carry becomes the new rounding error, which is also in
/// bf16. Source: Kahan, CACM 8(1), 1965; Zamirai et al., 2020.
GRADMETER_HOST_DEVICE constexpr void bf16_kahan(float& w, float target, float& carry) {
  const float y = bf16_nearest((target - w) - carry);
  const float sum = bf16_nearest(w + y);
  carry = bf16_nearest((sum - w) - y);
  w = sum;
}

/// Rounds away from zero with a probability equal to the fraction that is cut off, else towards zero. The number of the
/// update and the place of the weight among all weights are the key of the draw; a block of random bits serves four
/// neighbours. Source: Gupta et al., ICML 2015.
struct Bf16Stochastic {
  static constexpr std::uint64_t seed = 0x62663136,
                                 numbers_per_draw = 4;  ///< each draw of 64 bits gives four numbers of 16 bits
  /// bits: the draw for block number `place / numbers_per_draw`, which serves all places of the block.
  GRADMETER_HOST_DEVICE static constexpr float rounded(float x, std::uint64_t bits, std::uint64_t place) {
    return bf16_after_adding(x, static_cast<std::uint32_t>(bits >> (16 * (place % numbers_per_draw))) & 0xffff);
  }
};

}  // namespace gradmeter::kernels
