#include "kernels/lns/knots.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <optional>
#include <stdexcept>

#include "core/format.hpp"

namespace gradmeter::kernels {

namespace {

struct Coefficients {
  std::int32_t value, slope, curve;
};

struct Arc {
  unsigned fraction_bits;
  bool opposite;
  std::uint32_t first, width;

  double real(double r) const { return lns_g(fraction_bits, first + r, opposite); }
  std::int32_t place(std::uint32_t r) const { return static_cast<std::int32_t>(r * (0x8000 / width)); }
  std::int32_t rise(const Coefficients& c, std::uint32_t r) const {
    return ((c.slope + ((c.curve * place(r)) >> 16)) * place(r)) >> 16;
  }
};

constexpr double unit = 1 << LnsKnots::value_bits;

Coefficients line(const Arc& arc) {
  const double begin = arc.real(0), step = (arc.real(arc.width) - begin) / arc.width;
  double lowest = 0, highest = 0;
  for (std::uint32_t r = 0; r < arc.width; ++r) {
    const double distance = arc.real(r) - (begin + step * r);
    lowest = std::min(lowest, distance);
    highest = std::max(highest, distance);
  }
  // The half rounds to nearest; the quarter of a last place makes up for the product that is rounded down.
  return {static_cast<std::int32_t>(std::lround((begin + (lowest + highest) / 2 + 0.5) * unit + 0.25)),
          static_cast<std::int32_t>(std::lround(2 * step * arc.width * unit)), 0};
}

// With slope and curve given, each entry bounds the value from both sides; nothing when the bounds cross.
std::optional<std::int32_t> value_for(const Arc& arc, Coefficients c) {
  std::int32_t least = std::numeric_limits<std::int16_t>::min(), most = std::numeric_limits<std::int16_t>::max();
  for (std::uint32_t r = 0; r < arc.width; ++r) {
    const auto wanted = static_cast<std::int32_t>(std::lround(arc.real(r))) * (1 << LnsKnots::value_bits);
    least = std::max(least, wanted - arc.rise(c, r));
    most = std::min(most, wanted + (1 << LnsKnots::value_bits) - 1 - arc.rise(c, r));
    if (least > most) return std::nullopt;
  }
  return (least + most) / 2;
}

// From the parabola through both ends and the middle outwards, in squares of growing size.
Coefficients parabola(const Arc& arc) {
  const double begin = arc.real(0), middle = arc.real(arc.width / 2.0), end = arc.real(arc.width);
  const double bend = 2 * (begin + end - 2 * middle), climb = end - begin - bend;
  const auto slope = static_cast<std::int32_t>(std::lround(2 * climb * unit));
  const auto curve = static_cast<std::int32_t>(std::lround(4 * bend * unit));
  constexpr std::int32_t furthest = 256;
  for (std::int32_t size = 0; size <= furthest; ++size)
    for (std::int32_t i = -size; i <= size; ++i)
      for (std::int32_t j = -size; j <= size; j += std::abs(i) == size ? 1 : std::max(2 * size, 1)) {
        const Coefficients c{0, slope + i, curve + 2 * j};
        if (const auto value = value_for(arc, c)) return {*value, c.slope, c.curve};
      }
  throw std::logic_error(fmt::format("no parabola gives the entries of G{} from {} on with {} fraction bits",
                                     arc.opposite ? '-' : '+', arc.first, arc.fraction_bits));
}

}  // namespace

double lns_g(unsigned fraction_bits, double d, bool opposite) {
  const double ulps = double(1U << fraction_bits), x = d / ulps * std::numbers::ln2;
  // log1p and expm1 keep all digits where 1 ± 2^(-d) would lose them.
  return ulps / std::numbers::ln2 * (opposite ? std::log(-std::expm1(-x)) : std::log1p(std::exp(-x)));
}

std::int32_t LnsKnots::g(unsigned fraction_bits, std::uint32_t d, bool opposite) const {
  if (d >= entries) return 0;
  if (opposite && d < near_count) return near[d];
  const unsigned shift = fraction_bits - 2;
  const std::uint32_t held = std::min(d, static_cast<std::uint32_t>(arcs << shift) - 1);
  const std::size_t i = (held >> shift) + (opposite ? arcs : 0);
  const Arc arc{fraction_bits, opposite, 0, 1U << shift};
  return (value[i] + arc.rise({value[i], slope[i], curve[i]}, held % arc.width)) >> value_bits;
}

LnsKnots make_lns_knots(unsigned fraction_bits, LnsArc kind, std::uint32_t entries) {
  LnsKnots knots;
  knots.entries = entries;
  const std::uint32_t width = 1U << (fraction_bits - 2);
  for (std::uint32_t i = 0; i < 2 * LnsKnots::arcs; ++i) {
    const Arc arc{fraction_bits, i >= LnsKnots::arcs, static_cast<std::uint32_t>(i % LnsKnots::arcs) * width, width};
    // What stands in `near` needs no arc, and has none where G- is infinite.
    if (arc.opposite && arc.first + width <= LnsKnots::near_count) continue;
    const Coefficients c = kind == LnsArc::line ? line(arc) : parabola(arc);
    knots.value[i] = static_cast<std::int16_t>(c.value);
    knots.slope[i] = static_cast<std::int16_t>(c.slope);
    knots.curve[i] = static_cast<std::int16_t>(c.curve);
  }
  for (std::uint32_t d = 1; d < LnsKnots::near_count; ++d)
    knots.near[d] = static_cast<std::int16_t>(std::lround(lns_g(fraction_bits, d, true)));
  return knots;
}

}  // namespace gradmeter::kernels
