// TernGrad with no vectors: the reference.
#pragma once
#include <cmath>
#include <cstring>
#include <limits>

#include "compression/detail/bucketed_plain.hpp"
#include "compression/detail/qsgd_rule.hpp"
#include "core/host_device.hpp"

namespace gradmeter::compression::detail {

using TernaryRule = QsgdRule<2, Rounding::stochastic>;

/// A span is one bucket of any length.
inline constexpr WireLayout ternary_layout{.bucket = std::size_t{1} << 62, .bits = TernaryRule::bits};

/// M from the largest |x| (NaN when not all are finite) and the sum of squares.
GRADMETER_HOST_DEVICE inline float clipped_scale(float most, double squares, std::size_t n, double clip) {
  if (clip == 0 || !(most > 0)) return most;
  const double sigma = std::sqrt(squares / static_cast<double>(n));
  // Of tiny numbers among zeros, sigma may vanish where they do not.
  const double limit = core::greater(clip * sigma, double{std::numeric_limits<float>::denorm_min()});
  return limit < double{most} ? static_cast<float>(limit) : most;
}

inline float ternary_scale_plain(std::span<const float> x, double clip) {
  return clipped_scale(max_norm(x), sum_of_squares(x), x.size(), clip);
}

/// `codes` is zero beforehand.
inline void ternary_encode_plain(std::span<const float> x, float scale, const Draws& draws, std::byte* codes) {
  if (scale > 0) encode_plain_codes<TernaryRule>(TernaryRule::Encoder(scale), x, draws, 0, codes);
}

/// One code, as a number.
GRADMETER_HOST_DEVICE inline std::int8_t ternary_code(const TernaryRule::Encoder& encoder, float x,
                                                      std::uint32_t draw) {
  const std::uint32_t code = encoder.code(x, draw);
  return static_cast<std::int8_t>(code == 3 ? -1 : static_cast<int>(code));
}

}  // namespace gradmeter::compression::detail
