// SPDX-License-Identifier: Apache-2.0
// Counter-based random numbers: a draw depends on (key, counter) alone, never on earlier draws, so any rank or thread
// can draw any element. Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC11 (Philox4x32-10).
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "core/host_device.hpp"

namespace gradmeter::core {

using PhiloxBlock = std::array<std::uint32_t, 4>;
/// Multipliers (table 2 of the paper) and Weyl increments (section 4.3).
inline constexpr std::uint64_t philox_multiplier0 = 0xD2511F53, philox_multiplier1 = 0xCD9E8D57;
inline constexpr std::uint32_t philox_weyl0 = 0x9E3779B9, philox_weyl1 = 0xBB67AE85;
inline constexpr int philox_rounds = 10;

namespace detail {
constexpr std::uint64_t join(std::uint32_t low, std::uint32_t high) { return std::uint64_t{high} << 32 | low; }
constexpr std::uint32_t low_half(std::uint64_t x) { return static_cast<std::uint32_t>(x); }
constexpr std::uint32_t high_half(std::uint64_t x) { return static_cast<std::uint32_t>(x >> 32); }
}  // namespace detail

/// The four words of a block, as a struct that device code can use too.
struct PhiloxWords {
  std::uint32_t c0, c1, c2, c3;
};
/// Philox4x32-10 of the counter `c` with the key (k0, k1).
GRADMETER_HOST_DEVICE constexpr PhiloxWords philox_words(PhiloxWords c, std::uint32_t k0, std::uint32_t k1) {
  for (int round = 0; round < philox_rounds; ++round) {
    const std::uint64_t product0 = philox_multiplier0 * c.c0, product1 = philox_multiplier1 * c.c2;
    c = {static_cast<std::uint32_t>(product1 >> 32) ^ c.c1 ^ k0, static_cast<std::uint32_t>(product1),
         static_cast<std::uint32_t>(product0 >> 32) ^ c.c3 ^ k1, static_cast<std::uint32_t>(product0)};
    k0 += philox_weyl0;
    k1 += philox_weyl1;
  }
  return c;
}
/// Philox4x32-10. The tests compare it with the known answers of Random123.
constexpr PhiloxBlock philox4x32(PhiloxBlock counter, std::array<std::uint32_t, 2> key) {
  const auto [c0, c1, c2, c3] = philox_words({counter[0], counter[1], counter[2], counter[3]}, key[0], key[1]);
  return {c0, c1, c2, c3};
}

/// The block of (seed, stream, i). Each such triple has a block of its own, since the three numbers fill key and
/// counter exactly.
constexpr PhiloxBlock random_block(std::uint64_t seed, std::uint64_t stream, std::uint64_t i) {
  using detail::high_half, detail::low_half;
  return philox4x32({low_half(i), high_half(i), low_half(stream), high_half(stream)},
                    {low_half(seed), high_half(seed)});
}
/// A seed from the system's entropy, for draws that measured code must not be able to predict.
std::uint64_t unpredictable_seed();

/// The same bits as Random(seed, stream).bits(i).
GRADMETER_HOST_DEVICE constexpr std::uint64_t random_bits(std::uint64_t seed, std::uint64_t stream, std::uint64_t i) {
  constexpr int half = 32;
  const PhiloxWords b = philox_words({static_cast<std::uint32_t>(i), static_cast<std::uint32_t>(i >> half),
                                      static_cast<std::uint32_t>(stream), static_cast<std::uint32_t>(stream >> half)},
                                     static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> half));
  return std::uint64_t{b.c1} << half | b.c0;
}

/// A stream of draws. Draw i is a pure function of (seed, stream, i).
class Random {
 public:
  Random(std::uint64_t seed, std::uint64_t stream) : seed_(seed), stream_(stream) {}
  std::uint64_t bits(std::uint64_t i) const;  ///< draw i, 64 bits
  /// Fills `out` with draws first, first + 1, …: the same bits as single draws, computed with the processor's widest
  /// vectors.
  void bits(std::uint64_t first, std::span<std::uint64_t> out) const;
  double uniform(std::uint64_t i) const;  ///< draw i as a number in [0, 1), 53 bits
  static double uniform_of(std::uint64_t bits) { return static_cast<double>(bits >> 11) * 0x1p-53; }
  /// The sum of twelve uniform numbers, minus six: mean 0, variance 1, |x| <= 6. It needs no libm, so its bits are
  /// equal on every machine. Draw i uses the upper halves of blocks 12i … 12i+11, which `bits` and `uniform` do not
  /// use.
  double gaussian(std::uint64_t i) const;
  /// Draw i as a whole number in [0, n), by multiply-shift; the bias is below 2^-32 for n < 2^32.
  std::uint64_t below(std::uint64_t i, std::uint64_t n) const;

 private:
  std::uint64_t seed_, stream_;
};

/// A permutation of [0, n), chosen by the seed (Feistel network, cycle walking). Each value is computed without a
/// table, so any rank can find its own samples of a shuffled epoch.
class Permutation {
 public:
  Permutation(std::uint64_t n, std::uint64_t seed);
  std::uint64_t operator()(std::uint64_t i) const;

 private:
  std::uint64_t encrypt(std::uint64_t x) const;
  std::uint64_t n_;
  unsigned half_bits_;
  std::uint64_t seed_;
};

}  // namespace gradmeter::core
