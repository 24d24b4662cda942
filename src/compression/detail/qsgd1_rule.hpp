// One random bit: +N with probability (1 + x/N)/2, else -N.
#pragma once
#include "compression/detail/bucketed.hpp"
#include "core/host_device.hpp"

namespace gradmeter::compression::detail {

struct Qsgd1Rule {
  static constexpr std::size_t bits = 1;
  static constexpr bool random = true;
  using Scale = float;
  GRADMETER_HOST_DEVICE static float scale(float norm) { return norm; }

  struct Encoder {
    GRADMETER_HOST_DEVICE explicit Encoder(float norm)
        : prescale(prescale_for(norm)), factor(static_cast<float>(0x1p23 / (double{norm} * prescale))) {}
    /// The probability is held as an integer of 2^-24, from 0 to 2^24 but for a rounding.
    GRADMETER_HOST_DEVICE std::uint32_t code(float x, std::uint32_t draw) const {
      const auto chance = static_cast<std::int32_t>(x * prescale * factor + 0x1p23f);
      return static_cast<std::int32_t>(draw) < chance ? 1 : 0;
    }
    float prescale, factor;
  };
  /// 0 - N is +0 in a bucket of zeros, where -N is not.
  struct Decoder {
    GRADMETER_HOST_DEVICE explicit Decoder(float scale) : positive(scale), negative(0.0f - scale) {}
    GRADMETER_HOST_DEVICE float value(std::uint32_t code) const { return code ? positive : negative; }
    float positive, negative;
  };
};

}  // namespace gradmeter::compression::detail
