// Powers of two below the bucket's 2^E, E = ceil(log2 N): bit 7 sign; c = 0 is zero, c = 1 ... 127 is 2^(E-127+c).
#pragma once
#include <bit>
#include <cmath>
#include <limits>

#include "compression/detail/bucketed.hpp"
#include "core/host_device.hpp"

namespace gradmeter::compression::detail {

/// Scaled by 2^-E, c is a float's own exponent. 23 random bits added to the mantissa carry into it with the mantissa as
/// probability, which is the right one. Below the lowest power the scaled numbers are subnormal, and the same holds.
struct NaturalRule {
  static constexpr std::size_t bits = 8;
  static constexpr bool random = true;
  using Scale = std::int16_t;
  static constexpr Scale unfit = std::numeric_limits<Scale>::min();  ///< the E of a bucket that is not finite
  GRADMETER_HOST_DEVICE static Scale scale(float norm) {
    if (!std::isfinite(norm)) return unfit;
    if (norm == 0) return 0;
    int exponent = 0;
    const float mantissa = std::frexp(norm, &exponent);  // in [1/2, 1)
    return static_cast<Scale>(mantissa == 0.5f ? exponent - 1 : exponent);
  }
  /// 2^e; zero or infinity where a damaged wire says so.
  GRADMETER_HOST_DEVICE static float power(int e) { return std::ldexp(1.0f, e); }
  /// E reaches from -149 to 128: its half has both signs as a power.
  GRADMETER_HOST_DEVICE static int half(int e) { return e >> 1; }

  struct Encoder {
    GRADMETER_HOST_DEVICE explicit Encoder(float norm)
        : first(power(-half(scale(norm)))), second(power(half(scale(norm)) - scale(norm))) {}
    GRADMETER_HOST_DEVICE std::uint32_t code(float x, std::uint32_t draw) const {
      const std::uint32_t c = (std::bit_cast<std::uint32_t>(std::fabs(x) * first * second) + (draw >> 1)) >> 23;
      return c == 0 ? 0 : c | (std::signbit(x) ? 0x80u : 0u);
    }
    float first, second;
  };
  struct Decoder {
    GRADMETER_HOST_DEVICE explicit Decoder(Scale e)
        : first(e == unfit ? 1.0f : power(half(e))),
          second(e == unfit ? std::numeric_limits<float>::quiet_NaN() : power(e - half(e))) {}
    GRADMETER_HOST_DEVICE float value(std::uint32_t code) const {
      const float magnitude = core::lesser(std::bit_cast<float>((code & 0x7f) << 23) * first, most) * second;
      return code & 0x80 ? -magnitude : magnitude;
    }
    /// 2^128 is not a float: with E = 128 the largest float stands for it, 2^-24 below.
    static constexpr float most = 0x1.fffffep63f;
    float first, second;
  };
};

}  // namespace gradmeter::compression::detail
