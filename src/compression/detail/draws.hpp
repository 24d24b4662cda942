// SPDX-License-Identifier: Apache-2.0
// The random numbers ("draws") of stochastic rounding. A draw is a hash of a key and of the element's number (its index
// in the tensor), 24 bits long and the same on every instruction set.
#pragma once
#include <cstdint>

#include "compression/codec.hpp"
#include "core/host_device.hpp"

namespace gradmeter::compression::detail {

/// SplitMix64's finaliser (Steele, Lea, Flood, OOPSLA 2014): every bit of the input reaches every bit of the output.
GRADMETER_HOST_DEVICE constexpr std::uint64_t hash64(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

/// Hashes the low 32 bits of an element's number by two rounds of xorshift and multiply, with the shifts and
/// multipliers of Wellons' lowbias32 (nullprogram.com, 2018). The last xorshift of lowbias32 is left out: it only
/// improves low bits, which are cut off here. The first half of the key is added before the first round, the second
/// half is xored in before the last multiplication. With the first half alone, all keys would give the same sequence of
/// draws, only shifted.
struct DrawKeys {
  // These are scalars because device code may not read an array constant of the host: nvcc compiles it to a trap.
  static constexpr std::uint32_t first_multiplier = 0x7feb352d, second_multiplier = 0x846ca68b;
  static constexpr int first_shift = 16, second_shift = 15;
  std::uint32_t first = 0, second = 0;

  /// The draw, in [0, 2^24), for the number with these low 32 bits.
  GRADMETER_HOST_DEVICE constexpr std::uint32_t draw(std::uint32_t low) const {
    std::uint32_t x = low + first;
    x = (x ^ (x >> first_shift)) * first_multiplier;
    x = (x ^ (x >> second_shift) ^ second) * second_multiplier;
    return x >> 8;
  }
};

/// The draws for the elements of the span that a codec encodes; element i of the span has number `first` + i.
class Draws {
 public:
  explicit Draws(const RandomDraw& draw) : key_(draw.key()), first_(draw.first) {}
  GRADMETER_HOST_DEVICE constexpr std::uint64_t number(std::uint64_t i) const { return first_ + i; }
  /// The keys for element i; they are the same for all numbers with equal upper 32 bits.
  GRADMETER_HOST_DEVICE constexpr DrawKeys keys(std::uint64_t i) const {
    const std::uint64_t mix = hash64(key_ ^ hash64(number(i) >> 32));
    return {static_cast<std::uint32_t>(mix), static_cast<std::uint32_t>(mix >> 32)};
  }
  /// True if the numbers of elements [i, i + n) differ in their upper 32 bits, so that their keys differ.
  GRADMETER_HOST_DEVICE constexpr bool crosses(std::uint64_t i, std::uint64_t n) const {
    return n > 0 && number(i) >> 32 != number(i + n - 1) >> 32;
  }
  GRADMETER_HOST_DEVICE constexpr std::uint32_t draw(std::uint64_t i) const {
    return keys(i).draw(static_cast<std::uint32_t>(number(i)));
  }

 private:
  std::uint64_t key_, first_;
};

}  // namespace gradmeter::compression::detail
