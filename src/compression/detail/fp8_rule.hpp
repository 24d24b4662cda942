// An 8-bit float of x·most/N, N the bucket's largest |x|.
#pragma once
#include <cmath>

#include "compression/detail/bucketed.hpp"
#include "core/host_device.hpp"
#include "core/small_float.hpp"

namespace gradmeter::compression::detail {

template <bool e4m3>
struct Fp8Rule {
  static constexpr core::SmallFormat format = e4m3 ? core::e4m3_format : core::e5m2_format;
  static constexpr float most = e4m3 ? 448.0f : 57344.0f;  ///< OCP's largest finite numbers
  static constexpr std::size_t bits = 8;
  static constexpr bool random = false;
  using Scale = float;
  GRADMETER_HOST_DEVICE static float scale(float norm) { return norm; }

  struct Encoder {
    GRADMETER_HOST_DEVICE explicit Encoder(float norm)
        : prescale(prescale_for(norm)), factor(static_cast<float>(double{most} / (double{norm} * prescale))) {}
    GRADMETER_HOST_DEVICE std::uint32_t code(float x, std::uint32_t) const {
      const float scaled = core::lesser(std::fabs(x) * prescale * factor, most);
      return core::rounded_code<format>(std::copysign(scaled, x));
    }
    float prescale, factor;
  };
  struct Decoder {
    GRADMETER_HOST_DEVICE explicit Decoder(float scale) : norm(scale) {}
    GRADMETER_HOST_DEVICE float value(std::uint32_t code) const {
      return core::to_float(format, static_cast<std::uint16_t>(code)) * inverse * norm;
    }
    static constexpr float inverse = 1.0f / most;
    float norm;
  };
};

}  // namespace gradmeter::compression::detail
