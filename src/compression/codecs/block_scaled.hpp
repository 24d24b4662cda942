// SPDX-License-Identifier: Apache-2.0
// Codecs with one scale for each bucket and a narrow number format for each element: fp8 rounds to nearest, lns4 and
// natural8 round at random without bias.
#pragma once
#include <cmath>
#include <limits>
#include <memory>

#include "compression/codec.hpp"
#include "compression/detail/bucketed.hpp"
#include "core/element.hpp"
#include "core/host_device.hpp"
#include "core/name.hpp"

namespace gradmeter::compression {

/// An 8-bit float for each element.
/// Wire: 8 + 32/bucket bits an element. The scale is N, the bucket's largest |x|; the code is x·448/N (e4m3) or
/// x·57344/N (e5m2), rounded to nearest even. Error: relative, at most 2^-4 for |x| >= N·2^-6/448 (e4m3), or 2^-3 for
/// |x| >= N·2^-14/57344 (e5m2). For smaller |x| the error of the code is at most half the format's smallest subnormal.
/// Cost: reads and writes 5 bytes an element to encode or decode, 9 to decode and add.
/// Errors: UsageError unless `bucket` is a multiple of 64.
/// Source: Micikevicius et al., "FP8 formats for deep learning", arXiv:2209.05433; OCP 8-bit Floating Point 1.0.
std::unique_ptr<Codec> make_fp8_e4m3(const core::ParsedName&);
std::unique_ptr<Codec> make_fp8_e5m2(const core::ParsedName&);

/// Four bits in a logarithmic number system.
/// Wire: 4 + 32/bucket bits an element: a sign, and three bits for one of the levels 0, N·2^-6, N·2^-5 … N, where N is
/// the bucket's largest |x|. |x| is rounded at random to one of the levels l and h around it, without bias: the
/// probability is linear in |x|. Mean squared error of a bucket: Σ (|x| - l)(h - |x|).
/// Cost: reads and writes 4.5 bytes an element to encode or decode, 8.5 to decode and add.
/// Errors: UsageError unless `bucket` is a multiple of 64.
/// Source: Horváth et al., MSML 2022 (natural dithering: levels at powers of two), with the max norm.
std::unique_ptr<Codec> make_lns4(const core::ParsedName&);

/// Natural compression: powers of two.
/// Wire: 8 + 16/bucket bits an element. The scale is an int16 E = ceil(log2 max|x|). A code is a sign (bit 7) and a
/// number c: c = 0 is zero, c = 1 … 127 is 2^(E-127+c). |x| is rounded at random to one of the neighbouring powers,
/// without bias; below the lowest power, to that power or to zero. Mean squared error of a bucket:
/// Σ (|x| - 2^e)(2^(e+1) - |x|), where 2^e is the power below |x|; at most ‖x‖²/8. A bucket that is not finite has
/// E = -32768. A code for 2^128, which is not a float, decodes to the largest float.
/// Cost: reads and writes 5 bytes an element to encode or decode, 9 to decode and add.
/// Errors: UsageError unless `bucket` is a multiple of 64.
/// Source: Horváth et al., "Natural compression for distributed deep learning", MSML 2022.
std::unique_ptr<Codec> make_natural8(const core::ParsedName&);

}  // namespace gradmeter::compression

namespace gradmeter::compression::detail {

/// The code is the 8-bit float of x·top/N, where N is the bucket's largest |x|.
template <bool e4m3>
struct Fp8Rule {
  static constexpr core::SmallFormat format = e4m3 ? core::e4m3_format : core::e5m2_format;
  static constexpr float top = e4m3 ? 448.0f : 57344.0f;  ///< OCP's largest finite numbers
  static constexpr std::size_t bits = 8;
  static constexpr bool random = false;
  using Scale = float;
  GRADMETER_HOST_DEVICE static float scale(float norm) { return norm; }

  GRADMETER_HOST_DEVICE static Coefficients encoder(float norm) { return factors_to(top, norm); }
  GRADMETER_HOST_DEVICE static std::uint32_t code(Coefficients c, float x, std::uint32_t) {
    const float scaled = core::lesser_number(std::fabs(x) * c.first * c.second, top);
    return core::rounded_magnitude<format>(core::bits_as<std::uint32_t>(scaled)) |
           (std::signbit(x) ? format.sign() : std::uint32_t{0});
  }

  static constexpr float inverse = 1.0f / top;
  GRADMETER_HOST_DEVICE static Coefficients decoder(float norm) { return {inverse, norm}; }
  GRADMETER_HOST_DEVICE static float value(Coefficients c, std::uint32_t code) {
    return core::to_float(format, static_cast<std::uint16_t>(code)) * c.first * c.second;
  }
};

/// A code is a sign (bit 3) and one of eight levels (bits 0 to 2): level 0 is zero, level k = 1 … 7 is N·2^(k-7), where
/// N is the bucket's largest |x|. |x|/N is held as an integer: the bits from 23 on are the level, and the lower bits
/// are the position between this level and the next. From |x|/N = 2^-6 on, this integer is made of the float's own
/// bits, with another exponent bias; below, it is |x|/N·2^6 in units of 2^-23. To round, 23 random bits are added;
/// their carry may raise the level.
struct Lns4Rule {
  static constexpr std::size_t bits = 4;
  static constexpr bool random = true;
  /// top, lowest: |x|/N of the highest level, and of the lowest one above 0. one_in_units: |x|/N = 1 in units of 2^-29,
  /// in which `lowest` is 2^23.
  static constexpr float top = 1.0f, lowest = 0x1p-6f, one_in_units = 0x1p29f;
  static constexpr std::uint32_t base = std::uint32_t{120} << 23;  ///< the float 2^-7, one level below the lowest
  using Scale = float;
  GRADMETER_HOST_DEVICE static float scale(float norm) { return norm; }

  GRADMETER_HOST_DEVICE static Coefficients encoder(float norm) { return factors_to(top, norm); }
  GRADMETER_HOST_DEVICE static std::uint32_t code(Coefficients c, float x, std::uint32_t draw) {
    const float share = core::lesser_number(std::fabs(x) * c.first * c.second, top);
    const std::uint32_t level_and_position =
        share < lowest ? static_cast<std::uint32_t>(share * one_in_units) : core::bits_as<std::uint32_t>(share) - base;
    const std::uint32_t level = (level_and_position + (draw >> 1)) >> 23;
    return level == 0 ? 0 : level | (std::signbit(x) ? 8u : 0u);
  }

  GRADMETER_HOST_DEVICE static Coefficients decoder(float norm) { return {norm, norm}; }
  GRADMETER_HOST_DEVICE static float value(Coefficients c, std::uint32_t code) {
    const std::uint32_t level = code & 7;
    const float magnitude = (level == 0 ? 0.0f : core::bits_as<float>((level << 23) + base)) * c.first;
    return code & 8 ? -magnitude : magnitude;
  }
};

/// A code is a sign (bit 7) and a number c: c = 0 is zero, c = 1 … 127 is 2^(E-127+c), where E = ceil(log2 N) and N is
/// the bucket's largest |x|. Once x is scaled by 2^-E, c is the float's own exponent. To round, 23 random bits are
/// added to the mantissa; their carry raises the exponent with the probability that rounding without bias needs. The
/// same is true below the lowest power, where the scaled numbers are subnormal, unless the processor flushes
/// subnormals, as it does in the program: then they become 0, which is a bias of less than N·2^-125.
struct NaturalRule {
  static constexpr std::size_t bits = 8;
  static constexpr bool random = true;
  using Scale = std::int16_t;
  static constexpr Scale not_finite = std::numeric_limits<Scale>::min();  ///< the E of a bucket that is not finite
  GRADMETER_HOST_DEVICE static Scale scale(float norm) {
    if (!std::isfinite(norm)) return not_finite;
    if (norm == 0) return 0;
    int exponent = 0;
    const float mantissa = std::frexp(norm, &exponent);  // in [1/2, 1)
    return static_cast<Scale>(mantissa == 0.5f ? exponent - 1 : exponent);
  }
  /// 2^e for e from -126 to 127; 0 for a smaller e, and 2^127 for a larger one, since a damaged wire may hold any e.
  GRADMETER_HOST_DEVICE static float power(int e) {
    return core::bits_as<float>(static_cast<std::uint32_t>(core::lesser(core::greater(e, -127), 127) + 127) << 23);
  }
  /// Half of e. Since one of 2^E and 2^-E may not be a float (E is from -149 to 128), each may be computed as the
  /// product of two powers.
  GRADMETER_HOST_DEVICE static int half(int e) { return e >> 1; }

  static constexpr float top = 1;
  /// For E from -126 to 0 the single factor 2^-E gives the same result as two factors: neither way rounds.
  GRADMETER_HOST_DEVICE static Coefficients encoder(float norm) {
    const int e = scale(norm);
    if (e <= 0 && e >= -126) return {1, power(-e)};
    return {power(-half(e)), power(half(e) - e)};
  }
  GRADMETER_HOST_DEVICE static std::uint32_t code(Coefficients c, float x, std::uint32_t draw) {
    const auto scaled = core::bits_as<std::uint32_t>(std::fabs(x) * c.first * c.second);
    const std::uint32_t exponent = (scaled + (draw >> 1)) >> 23;
    return exponent == 0 ? 0 : exponent | (std::signbit(x) ? 0x80u : 0u);
  }

  /// The product of a code's power and the first factor is limited to this. It matters only for E = 128: 2^128 is not a
  /// float, so its code decodes to `largest_product` times the second factor, 2^64, which is the largest float,
  /// 2^128·(1 - 2^-24).
  static constexpr float largest_product = 0x1.fffffep63f;
  GRADMETER_HOST_DEVICE static Coefficients decoder(Scale e) {
    if (e == not_finite) return {0, core::quiet_nan<float>()};
    if (e >= -126 && e <= 127) return {1, power(e)};
    return {power(half(e)), power(e - half(e))};
  }
  /// True if the first factor is 1 and need not be multiplied: a number is its power times the second factor.
  GRADMETER_HOST_DEVICE static bool direct(Coefficients decoder) { return decoder.first == 1; }
  GRADMETER_HOST_DEVICE static float value(Coefficients c, std::uint32_t code) {
    const float magnitude =
        core::lesser(core::bits_as<float>((code & 0x7f) << 23) * c.first, largest_product) * c.second;
    return code & 0x80 ? -magnitude : magnitude;
  }
};

}  // namespace gradmeter::compression::detail
