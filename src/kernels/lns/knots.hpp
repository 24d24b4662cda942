// G+ and G− in a form that fits vector registers: 64 short arcs, and the 256 entries where G− is too steep for an arc.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>

namespace gradmeter::kernels {

/// 2^F·log2(1 ± 2^(−d / 2^F)) in double, not rounded; minus infinity for G−(0).
double lns_g(unsigned fraction_bits, double d, bool opposite);

enum class LnsArc { line, parabola };

/// An arc spans 2^(F−2) values of d, a quarter of an octave; 32 arcs for each sign, eight octaves. Beyond them G is ±1
/// until it rounds to 0. With t = 2^15·(place in the arc) and products >> 16, as vector units have them:
/// G = (value + ((slope + (curve·t >> 16))·t >> 16)) >> 6.
struct LnsKnots {
  static constexpr std::size_t arcs = 32, near_count = 256;
  static constexpr int value_bits = 6;
  /// [0, arcs) for equal signs (G+), then for opposite ones (G−).
  std::array<std::int16_t, 2 * arcs> value{}, slope{}, curve{};
  /// G−(d) itself; the value at 0 has no meaning.
  std::array<std::int16_t, near_count> near{};
  std::uint32_t entries = 0;  ///< G is 0 from here on

  /// What vector code computes, bit for bit.
  std::int32_t g(unsigned fraction_bits, std::uint32_t d, bool opposite) const;
};

/// Lines: through the ends of the arc, moved by half their largest distance from the curve.
/// Parabolas: searched until every entry is G rounded to nearest. Many parabolas lie within 0.06 of G, but the few
/// entries near a tie need one that passes on the right side of them.
/// Errors: std::logic_error when the search finds none, which a test excludes for each F.
LnsKnots make_lns_knots(unsigned fraction_bits, LnsArc arc, std::uint32_t entries);

}  // namespace gradmeter::kernels
