// Sign and seven powers of two up to the bucket's N: level 0 is zero, k = 1 ... 7 is N·2^(k-7).
#pragma once
#include <bit>
#include <cmath>

#include "compression/detail/bucketed.hpp"
#include "core/host_device.hpp"

namespace gradmeter::compression::detail {

/// |x|/N as a number whose bits from 23 on are the level, and whose lower bits are the position between levels. From
/// 2^-6 on those are a float's own bits, with the exponent re-based; below, |x|/N·2^6 in units of 2^-23. 23 random bits
/// carry.
struct Lns4Rule {
  static constexpr std::size_t bits = 4;
  static constexpr bool random = true;
  static constexpr float lowest = 0x1p-6f, to_lowest = 0x1p29f;
  static constexpr std::uint32_t base = std::uint32_t{120} << 23;  ///< the float 2^-7, one level below the lowest
  using Scale = float;
  GRADMETER_HOST_DEVICE static float scale(float norm) { return norm; }

  struct Encoder {
    GRADMETER_HOST_DEVICE explicit Encoder(float norm)
        : prescale(prescale_for(norm)), factor(static_cast<float>(1.0 / (double{norm} * prescale))) {}
    GRADMETER_HOST_DEVICE std::uint32_t code(float x, std::uint32_t draw) const {
      const float share = core::lesser(std::fabs(x) * prescale * factor, 1.0f);
      const std::uint32_t place =
          share < lowest ? static_cast<std::uint32_t>(share * to_lowest) : std::bit_cast<std::uint32_t>(share) - base;
      const std::uint32_t level = (place + (draw >> 1)) >> 23;
      return level == 0 ? 0 : level | (std::signbit(x) ? 8u : 0u);
    }
    float prescale, factor;
  };
  struct Decoder {
    GRADMETER_HOST_DEVICE explicit Decoder(float scale) : norm(scale) {}
    GRADMETER_HOST_DEVICE float value(std::uint32_t code) const {
      const std::uint32_t level = code & 7;
      const float magnitude = (level == 0 ? 0.0f : std::bit_cast<float>((level << 23) + base)) * norm;
      return code & 8 ? -magnitude : magnitude;
    }
    float norm;
  };
};

}  // namespace gradmeter::compression::detail
