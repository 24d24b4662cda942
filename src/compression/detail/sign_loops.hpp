// What `onebit` does with elements, with no vectors: the reference, and the last elements of a bucket.
#pragma once
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "compression/detail/tree_sum.hpp"

namespace gradmeter::compression::detail {

/// Partial sums of a piece (tree_sum.hpp). `up`: of |x|, or of those that are not negative where there are two means;
/// `down`: of all others. A sum is not finite exactly where an element is not: floats cannot overflow a double.
struct SignSums {
  std::array<double, sum_lanes> up{}, down{};
};

inline void take_one(bool two, float x, std::size_t lane, SignSums& sums) {
  if (!two) sums.up[lane] += double{std::fabs(x)};
  if (two && x >= 0) sums.up[lane] += double{x};
  if (two && !(x >= 0)) sums.down[lane] += double{x};
}

/// Fewer than 16 elements: their bits go to as many bytes as they need.
inline void take_rest(bool two, std::span<const float> x, std::byte* bits, SignSums& sums) {
  std::uint32_t signs = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    signs |= static_cast<std::uint32_t>(x[i] >= 0) << i;
    take_one(two, x[i], i, sums);
  }
  for (std::size_t i = 0; i < x.size(); i += 8) bits[i / 8] = static_cast<std::byte>(signs >> i & 0xff);
}

inline void take_signs_plain(bool two, const float* x, std::size_t groups, std::byte* bits, SignSums& sums) {
  sums = {};
  for (std::size_t g = 0; g < groups; ++g) take_rest(two, {x + g * sum_lanes, sum_lanes}, bits + 2 * g, sums);
}

inline void spread_rest(const std::byte* bits, float one, float zero, const float* addend, std::span<float> out) {
  for (std::size_t i = 0; i < out.size(); ++i) {
    const bool bit = (std::to_integer<unsigned>(bits[i / 8]) >> i % 8 & 1) != 0;
    const float value = bit ? one : zero;
    out[i] = addend ? addend[i] + value : value;
  }
}

inline void spread_signs_plain(const std::byte* bits, std::size_t groups, float one, float zero, const float* addend,
                               float* out) {
  spread_rest(bits, one, zero, addend, {out, groups * sum_lanes});
}

/// Bits 1 among the first n; those behind them in the last byte are 0.
inline std::size_t count_ones(const std::byte* bits, std::size_t n) {
  const std::size_t bytes = n / 8 + (n % 8 != 0);
  std::size_t ones = 0, i = 0;
  for (; i + 8 <= bytes; i += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, bits + i, 8);
    ones += static_cast<std::size_t>(std::popcount(word));
  }
  for (; i < bytes; ++i) ones += static_cast<std::size_t>(std::popcount(std::to_integer<unsigned>(bits[i])));
  return ones;
}

}  // namespace gradmeter::compression::detail
