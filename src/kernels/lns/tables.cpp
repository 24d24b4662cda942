// SPDX-License-Identifier: Apache-2.0
#include "kernels/lns/tables.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <optional>
#include <stdexcept>

#include "core/error.hpp"
#include "core/format.hpp"

namespace gradmeter::kernels {
namespace {

/// The numbers of an arc in LnsArcs.
struct Coefficients {
  std::int32_t value, slope, curve;
};

/// The arc of G for d in [first, first + width).
struct Arc {
  LnsArcKind kind;
  unsigned fraction_bits;
  bool opposite;
  std::uint32_t first, width;

  /// Units of the arc's numbers in one code.
  double units_per_code() const { return 0x1p16 / LnsArcs::unit(kind); }
  /// G at d = first + r, not rounded.
  double exact(double r) const { return lns_g(fraction_bits, first + r, opposite); }
  /// The position t in the arc (LnsArcs) of d = first + r.
  std::int32_t place(std::uint32_t r) const {
    const auto t = static_cast<std::uint16_t>((first + r) << (17 - fraction_bits));
    return kind == LnsArcKind::line ? t & 0x7fff : static_cast<std::int16_t>(t);
  }
  /// (slope + curve·t)·t at d = first + r, as vector units compute it.
  std::int32_t rise(const Coefficients& c, std::uint32_t r) const {
    return (static_cast<std::int16_t>(c.slope + ((c.curve * place(r)) >> 16)) * place(r)) >> 16;
  }
};

/// The index in LnsArcs of the arc to which d belongs.
std::size_t arc_of(LnsArcKind kind, unsigned fraction_bits, std::uint32_t d, bool opposite) {
  const unsigned shift = fraction_bits - 2;
  if (kind == LnsArcKind::line) return (d >> shift) + (opposite ? LnsArcs::first_minus_line : 0);
  if (opposite) return std::min<std::size_t>(d >> (shift - 2), LnsArcs::extra_parabolas + (d >> shift));
  return LnsArcs::first_plus_parabola + ((d + (1U << shift)) >> (shift + 1));
}

/// The line through both ends, shifted to the middle between its largest distances from G.
Coefficients line(const Arc& arc) {
  const double begin = arc.exact(0), slope_per_d = (arc.exact(arc.width) - begin) / arc.width;
  double lowest = 0, highest = 0;
  for (std::uint32_t r = 0; r < arc.width; ++r) {
    const double distance = arc.exact(r) - (begin + slope_per_d * r);
    lowest = std::min(lowest, distance);
    highest = std::max(highest, distance);
  }
  // Adding 0.5 rounds G to nearest; 0.25 of a unit makes up for the product, which is rounded down.
  return {static_cast<std::int32_t>(std::lround((begin + (lowest + highest) / 2 + 0.5) * arc.units_per_code() + 0.25)),
          static_cast<std::int32_t>(std::lround(2 * slope_per_d * arc.width * arc.units_per_code())), 0};
}

// Finds a `value` with which slope and curve give every entry of the arc as G rounded to nearest: each entry bounds it
// from both sides. Empty: the bounds contradict each other.
std::optional<std::int32_t> value_for(const Arc& arc, Coefficients c) {
  std::int32_t least = std::numeric_limits<std::int16_t>::min(), most = std::numeric_limits<std::int16_t>::max();
  const auto begin_of = [&arc](std::int32_t g) {
    return static_cast<std::int32_t>(std::ceil(g * arc.units_per_code()));
  };
  for (std::uint32_t r = 0; r < arc.width; ++r) {
    const auto wanted = static_cast<std::int32_t>(std::lround(arc.exact(r)));
    least = std::max(least, begin_of(wanted) - arc.rise(c, r));
    most = std::min(most, begin_of(wanted + 1) - 1 - arc.rise(c, r));
    if (least > most) return std::nullopt;
  }
  return (least + most) / 2;
}

// Tries slopes and curves around those of the parabola through both ends and the middle, in squares of growing size.
Coefficients parabola(const Arc& arc) {
  const double half = arc.width / 2.0, t = arc.place(0), step = half * (1U << (17 - arc.fraction_bits));
  const double to_middle = (arc.exact(half) - arc.exact(0)) / step;
  const double bend = ((arc.exact(2 * half) - arc.exact(half)) / step - to_middle) / (2 * step);
  const double climb = to_middle - bend * (2 * t + step);
  const auto slope = static_cast<std::int32_t>(std::lround(0x1p16 * climb * arc.units_per_code()));
  const auto curve = static_cast<std::int32_t>(std::lround(0x1p32 * bend * arc.units_per_code()));
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
  const double codes_per_octave = double(1U << fraction_bits), x = d / codes_per_octave * std::numbers::ln2;
  // log1p and expm1 keep all digits, which 1 ± 2^(-d) would lose for large or small d.
  return codes_per_octave / std::numbers::ln2 * (opposite ? std::log(-std::expm1(-x)) : std::log1p(std::exp(-x)));
}

std::int32_t LnsArcs::g(unsigned fraction_bits, std::uint32_t d, bool opposite) const {
  if (d >= entries) return 0;
  if (opposite && d < near_count(arc)) return near[d];
  const std::uint32_t clamped = std::min(d, (8U << fraction_bits) - 1);
  const std::size_t i = arc_of(arc, fraction_bits, clamped, opposite);
  const std::int32_t rise = Arc{arc, fraction_bits, opposite, clamped, 1}.rise({value[i], slope[i], curve[i]}, 0);
  return ((value[i] + rise) * unit(arc)) >> 16;
}

LnsArcs make_lns_arcs(unsigned fraction_bits, LnsArcKind kind, std::uint32_t entries) {
  LnsArcs arcs;
  arcs.entries = entries;
  arcs.arc = kind;
  for (const bool opposite : {false, true})
    for (std::uint32_t first = 0, end = 0; first < 8U << fraction_bits; first = end) {
      const std::size_t i = arc_of(kind, fraction_bits, first, opposite);
      while (end < 8U << fraction_bits && arc_of(kind, fraction_bits, end, opposite) == i) ++end;
      // d for which `near` has entries need no arc; there G- may be infinite.
      if (opposite && end <= LnsArcs::near_count(kind)) continue;
      const Arc arc{kind, fraction_bits, opposite, first, end - first};
      const Coefficients c = kind == LnsArcKind::line ? line(arc) : parabola(arc);
      arcs.value[i] = static_cast<std::int16_t>(c.value);
      arcs.slope[i] = static_cast<std::int16_t>(c.slope);
      arcs.curve[i] = static_cast<std::int16_t>(c.curve);
    }
  arcs.near[0] = std::numeric_limits<std::int16_t>::min();
  for (std::uint32_t d = 1; d < arcs.near.size(); ++d)
    arcs.near[d] = static_cast<std::int16_t>(std::lround(lns_g(fraction_bits, d, true)));
  return arcs;
}

namespace {

std::int32_t rounded_g(unsigned fraction_bits, std::uint32_t d, bool opposite) {
  return static_cast<std::int32_t>(std::lround(lns_g(fraction_bits, d, opposite)));
}

std::uint32_t count_entries(unsigned fraction_bits) {
  std::uint32_t d = 1;  // the magnitudes of both functions decrease with d
  while (rounded_g(fraction_bits, d, false) != 0 || rounded_g(fraction_bits, d, true) != 0) ++d;
  return d;
}

LnsArcs arcs_for(unsigned fraction_bits, LnsAddition kind) {
  if (fraction_bits < 6 || fraction_bits > 8)
    throw core::UsageError(
        fmt::format("a logarithmic number with {} fraction bits has no table; take 6, 7 or 8", fraction_bits));
  const LnsArcKind arc = kind == LnsAddition::exact ? LnsArcKind::parabola : LnsArcKind::line;
  return make_lns_arcs(fraction_bits, arc, count_entries(fraction_bits));
}

}  // namespace

LnsTables::LnsTables(unsigned fraction_bits, LnsAddition kind)
    : fraction_bits_(fraction_bits), kind_(kind), arcs_(arcs_for(fraction_bits, kind)) {
  for (std::uint32_t d = 0; d <= entries(); ++d)
    for (const bool opposite : {false, true}) {
      const bool cancels = opposite && d == 0;
      doubled_.push_back(static_cast<std::int16_t>(cancels ? 0 : 2 * arcs_.g(fraction_bits, d, opposite)));
    }
}

const LnsTables& lns_tables(unsigned fraction_bits, LnsAddition kind) {
  const auto chosen = [kind](const LnsTables& exact, const LnsTables& interpolated) -> const LnsTables& {
    return kind == LnsAddition::exact ? exact : interpolated;
  };
  if (fraction_bits == 6) {
    static const LnsTables exact(6, LnsAddition::exact), interpolated(6, LnsAddition::interpolated);
    return chosen(exact, interpolated);
  }
  if (fraction_bits == 7) {
    static const LnsTables exact(7, LnsAddition::exact), interpolated(7, LnsAddition::interpolated);
    return chosen(exact, interpolated);
  }
  if (fraction_bits != 8) arcs_for(fraction_bits, kind);  // refuses other numbers of bits
  static const LnsTables exact(8, LnsAddition::exact), interpolated(8, LnsAddition::interpolated);
  return chosen(exact, interpolated);
}

}  // namespace gradmeter::kernels
