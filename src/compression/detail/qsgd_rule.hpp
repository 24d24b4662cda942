// QSGD's arithmetic for one number: s = 2^(b-1) - 1 levels of either sign, q = sgn(x)·min(floor(s·|x|/N + u), s).
#pragma once
#include <bit>
#include <cmath>

#include "compression/detail/bucketed.hpp"
#include "core/host_device.hpp"

namespace gradmeter::compression::detail {

/// s·|x|/N and u are held as integers of 2^-24: for 8 bits the sum stays below 2^31, and its floor is a shift.
template <std::size_t code_bits, Rounding rounding>
struct QsgdRule {
  static constexpr std::size_t bits = code_bits;
  static constexpr bool random = rounding == Rounding::stochastic;
  static constexpr std::uint32_t levels = (1u << (bits - 1)) - 1;
  using Scale = float;
  GRADMETER_HOST_DEVICE static float scale(float norm) { return norm; }

  struct Encoder {
    GRADMETER_HOST_DEVICE explicit Encoder(float norm)
        : prescale(prescale_for(norm)),
          factor(static_cast<float>(static_cast<double>(cap) / (double{norm} * prescale))) {}
    GRADMETER_HOST_DEVICE std::uint32_t code(float x, std::uint32_t draw) const {
      const float level = core::lesser(std::fabs(x) * prescale * factor, cap);
      const std::uint32_t q = (static_cast<std::uint32_t>(level) + draw) >> 24;
      return (std::signbit(x) ? 0 - q : q) & ((1u << bits) - 1);
    }
    static constexpr float cap = static_cast<float>(levels) * 0x1p24f;
    float prescale, factor;
  };

  /// q/s comes first: N·q could leave the floats, N/s could vanish.
  struct Decoder {
    GRADMETER_HOST_DEVICE explicit Decoder(float scale) : norm(scale) {}
    GRADMETER_HOST_DEVICE float value(std::uint32_t code) const {
      const auto q = std::bit_cast<std::int32_t>(code << (32 - bits)) >> (32 - bits);
      return static_cast<float>(q) * inverse * norm;
    }
    static constexpr float inverse = 1.0f / static_cast<float>(levels);
    float norm;
  };
};

}  // namespace gradmeter::compression::detail
