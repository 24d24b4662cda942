// How weights kept in bf16 change, one number at a time: for the host's loops and a GPU's threads.
#pragma once
#include <bit>
#include <cstdint>

#include "core/host_device.hpp"
#include "core/random.hpp"

namespace gradmeter::kernels {

/// `added` to the half that is cut carries into the one that stays. Infinities and NaNs stay.
constexpr float bf16_with(float x, std::uint32_t added) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  const bool finite = (bits & 0x7f800000) != 0x7f800000;
  return std::bit_cast<float>(finite ? (bits + added) & 0xffff0000u : bits);
}
/// To nearest, ties to even.
constexpr float bf16_nearest(float x) { return bf16_with(x, 0x7fff + (std::bit_cast<std::uint32_t>(x) >> 16 & 1)); }

/// w becomes `target`, as near as bf16 has it; what rounding took is kept in the carry, in bf16 too.
/// Source: Kahan, CACM 8(1), 1965; Zamirai et al., 2020.
constexpr void bf16_kahan(float& w, float target, float& carry) {
  const float y = bf16_nearest((target - w) - carry);
  const float sum = bf16_nearest(w + y);
  carry = bf16_nearest((sum - w) - y);
  w = sum;
}

/// Up with the probability of what would be cut. The draw is that of (step, place): a block of random bits serves four
/// neighbours. Source: Gupta et al., ICML 2015.
struct Bf16Stochastic {
  static constexpr std::uint64_t seed = 0x62663136, each = 4;  ///< 16-bit draws of one of 64 bits
  static constexpr float rounded(float x, std::uint64_t bits, std::uint64_t place) {
    return bf16_with(x, static_cast<std::uint32_t>(bits >> (16 * (place % each))) & 0xffff);
  }
};

}  // namespace gradmeter::kernels
