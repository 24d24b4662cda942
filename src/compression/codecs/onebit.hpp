// SPDX-License-Identifier: Apache-2.0
// The codec `onebit`, which sends one bit an element, its sign. It is biased, so error feedback adds what the encoding
// lost of a gradient to the next gradient.
#pragma once
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <type_traits>

#include "compression/codec.hpp"
#include "compression/detail/bucketed.hpp"
#include "compression/detail/tree_sum.hpp"
#include "core/host_device.hpp"
#include "core/name.hpp"

namespace gradmeter::compression {

/// bit i = (x[i] >= 0). With one mean (`means=1`) a bit decodes to ±alpha, where alpha is the mean |x| of the bucket.
/// With two means (`means=2`) a bit decodes to the mean of the bucket's elements with the same bit.
/// Wire:   for each bucket its mean in fp32, or both means, that of bit 1 first; then one bit an element.
/// Error:  of a bucket x of n elements that decodes to C: |C-x|^2 = (1-delta)|x|^2, delta = |x|_1^2/(n|x|^2). With two
///         means: |C-x|^2 = |x|^2 - S+^2/n+ - S-^2/n-, where S+ is the sum of the n+ elements with bit 1, and S- that
///         of the n- others.
/// Bits:   equal on every instruction set, since sums are doubles, added in the order of detail/tree_sum.hpp.
/// Cost:   reads and writes 4 + 1/8 bytes an element to encode or decode, 8 + 1/8 to decode and add.
/// Source: Seide et al., Interspeech 2014 (two means); Karimireddy et al., ICML 2019 (sign times mean, feedback).
std::unique_ptr<Codec> make_onebit(const core::ParsedName&);

}  // namespace gradmeter::compression

namespace gradmeter::compression::detail {

/// The values that a bucket's bits 1 and 0 decode to: the mean and its negative, or one mean for each sign.
struct SignValues {
  float one = 0, zero = 0;
};

/// The decoding half of a rule (detail/bucketed.hpp), for one or two means a bucket. onebit has its own encoding,
/// because its scales are means.
template <bool two_means>
struct SignRule {
  static constexpr std::size_t bits = 1;
  using Scale = std::conditional_t<two_means, SignValues, float>;
  GRADMETER_HOST_DEVICE static Coefficients decoder(Scale means) {
    if constexpr (two_means) {
      return {means.one, means.zero};
    } else {
      return {means, -means};
    }
  }
  GRADMETER_HOST_DEVICE static float value(Coefficients c, std::uint32_t code) { return code ? c.first : c.second; }
};

/// The means of a bucket. `up`, `down`: the totals of its SignSums. With two means, `ones` elements are not negative
/// and `zeros` are negative. With one mean only ones + zeros counts, SignValues::one is the mean, and SignValues::zero
/// is 0: the decoder negates the mean. If a sum is not finite, both are `not_finite`, a NaN.
template <bool two_means>
GRADMETER_HOST_DEVICE SignValues sign_means(double up, double down, std::size_t ones, std::size_t zeros,
                                            float not_finite) {
  if (up - up != 0 || down - down != 0) return {not_finite, not_finite};
  if (!two_means) return {static_cast<float>(up / static_cast<double>(ones + zeros)), 0};
  return {ones ? static_cast<float>(up / static_cast<double>(ones)) : 0.0f,
          zeros ? static_cast<float>(down / static_cast<double>(zeros)) : 0.0f};
}

// Plain loops of `onebit` over elements. They are the reference, and handle the last elements of a bucket.

/// The partial sums of a piece (tree_sum.hpp). With one mean, `up` sums all |x|. With two means, `up` sums the elements
/// that are not negative, and `down` all others. A sum is not finite only if an element is not, since floats cannot
/// overflow a double.
struct SignSums {
  std::array<double, sum_lanes> up{}, down{};
};

inline void add_sign_sum(bool two_means, float x, std::size_t lane, SignSums& sums) {
  if (!two_means) sums.up[lane] += double{std::fabs(x)};
  if (two_means && x >= 0) sums.up[lane] += double{x};
  if (two_means && !(x >= 0)) sums.down[lane] += double{x};
}

/// Packs the signs of at most 16 elements into as many bytes as they need, and adds the elements to `sums`.
inline void pack_rest(bool two_means, std::span<const float> x, std::byte* bits, SignSums& sums) {
  std::uint32_t signs = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    signs |= static_cast<std::uint32_t>(x[i] >= 0) << i;
    add_sign_sum(two_means, x[i], i, sums);
  }
  for (std::size_t i = 0; i < x.size(); i += 8) bits[i / 8] = static_cast<std::byte>(signs >> i & 0xff);
}

/// Packs the signs of whole groups of 16 elements, two bytes a group; `sums` becomes the partial sums of the elements.
inline void pack_signs_plain(bool two_means, const float* x, std::size_t groups, std::byte* bits, SignSums& sums) {
  sums = {};
  for (std::size_t g = 0; g < groups; ++g) pack_rest(two_means, {x + g * sum_lanes, sum_lanes}, bits + 2 * g, sums);
}

inline void unpack_rest(const std::byte* bits, float one, float zero, const float* addend, std::span<float> out) {
  for (std::size_t i = 0; i < out.size(); ++i) {
    const bool bit = (std::to_integer<unsigned>(bits[i / 8]) >> i % 8 & 1) != 0;
    const float value = bit ? one : zero;
    out[i] = addend ? addend[i] + value : value;
  }
}

inline void unpack_signs_plain(const std::byte* bits, std::size_t groups, float one, float zero, const float* addend,
                               float* out) {
  unpack_rest(bits, one, zero, addend, {out, groups * sum_lanes});
}

/// The number of ones among the first n bits. The bits behind these in the last byte are 0.
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
