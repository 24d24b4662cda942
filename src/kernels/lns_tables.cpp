#include "kernels/lns_tables.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "core/error.hpp"
#include "core/format.hpp"

namespace gradmeter::kernels {

namespace {

// The line through a segment's ends, moved by half its largest distance from the curve: the error is then the same on
// both sides. G is monotone and bends one way, so that this is close to the best line there is.
void fit(unsigned fraction_bits, std::size_t segment, bool opposite, std::int16_t& value, std::int16_t& slope) {
  const std::size_t width = std::size_t{1} << (fraction_bits - 2), first = segment * width;
  const auto curve = [&](std::size_t r) { return lns_g(fraction_bits, double(first + r), opposite); };
  const double begin = curve(0), step = (curve(width) - begin) / double(width);
  double lowest = 0, highest = 0;
  for (std::size_t r = 0; r < width; ++r) {
    const double distance = curve(r) - (begin + step * double(r));
    lowest = std::min(lowest, distance);
    highest = std::max(highest, distance);
  }
  const double one = 1 << lns_knot_bits;
  // The half rounds to nearest; the quarter of a last place makes up for the product that is rounded down.
  value = static_cast<std::int16_t>(std::lround((begin + (lowest + highest) / 2 + 0.5) * one + 0.25));
  slope = static_cast<std::int16_t>(std::lround(2 * step * double(width) * one));
}

LnsKnots fit_all(unsigned fraction_bits) {
  LnsKnots knots;
  const std::size_t width = std::size_t{1} << (fraction_bits - 2);
  for (const bool opposite : {false, true})
    for (std::size_t s = 0; s < LnsKnots::count; ++s) {
      // What stands in `near` whole needs no line, and has none where G- is infinite.
      if (opposite && (s + 1) * width <= LnsKnots::near_count) continue;
      fit(fraction_bits, s, opposite, knots.value[opposite][s], knots.slope[opposite][s]);
    }
  for (std::size_t d = 1; d < LnsKnots::near_count; ++d)
    knots.near[d] = static_cast<std::int16_t>(std::lround(lns_g(fraction_bits, double(d), true)));
  return knots;
}

}  // namespace

double lns_g(unsigned fraction_bits, double d, bool opposite) {
  const double ulps = double(1U << fraction_bits), x = d / ulps * std::numbers::ln2;
  // log1p and expm1 keep all digits where 1 ± 2^(-d) would lose them.
  return ulps / std::numbers::ln2 * (opposite ? std::log(-std::expm1(-x)) : std::log1p(std::exp(-x)));
}

double lns_interpolation_error(bool opposite) { return opposite ? 1.46 : 0.66; }

std::int32_t LnsTables::entry(std::uint32_t d, bool opposite) const {
  if (opposite && d == 0) return 0;
  if (kind_ == LnsAddition::exact)
    return static_cast<std::int32_t>(std::lround(lns_g(fraction_bits_, double(d), opposite)));
  if (opposite && d < LnsKnots::near_count) return knots_.near[d];
  const unsigned shift = fraction_bits_ - 2, width = 1U << shift, segment = d >> shift;
  if (segment >= LnsKnots::count) return 0;
  const auto rest = static_cast<std::int32_t>((d % width) << (15 - shift));
  const std::int32_t rise = (knots_.slope[opposite][segment] * rest) >> 16;
  return (knots_.value[opposite][segment] + rise) >> lns_knot_bits;
}

LnsTables::LnsTables(unsigned fraction_bits, LnsAddition kind) : fraction_bits_(fraction_bits), kind_(kind) {
  if (fraction_bits < 6 || fraction_bits > 8)
    throw core::UsageError(
        fmt::format("a logarithmic number with {} fraction bits has no table; take 6, 7 or 8", fraction_bits));
  if (kind == LnsAddition::interpolated) knots_ = fit_all(fraction_bits);
  for (std::uint32_t d = LnsKnots::count << (fraction_bits - 2); d-- > 0 && entries_ == 0;)
    if (entry(d, false) != 0 || entry(d, true) != 0) entries_ = d + 1;
  for (std::uint32_t d = 0; d <= entries_; ++d)
    for (const bool opposite : {false, true}) doubled_.push_back(static_cast<std::int16_t>(2 * entry(d, opposite)));
}

const LnsTables& lns_tables(unsigned fraction_bits, LnsAddition kind) {
  const auto of = [kind](const LnsTables& exact, const LnsTables& interpolated) -> const LnsTables& {
    return kind == LnsAddition::exact ? exact : interpolated;
  };
  if (fraction_bits == 6) {
    static const LnsTables exact(6, LnsAddition::exact), interpolated(6, LnsAddition::interpolated);
    return of(exact, interpolated);
  }
  if (fraction_bits == 7) {
    static const LnsTables exact(7, LnsAddition::exact), interpolated(7, LnsAddition::interpolated);
    return of(exact, interpolated);
  }
  if (fraction_bits != 8) LnsTables(fraction_bits, kind);  // refuses
  static const LnsTables exact(8, LnsAddition::exact), interpolated(8, LnsAddition::interpolated);
  return of(exact, interpolated);
}

}  // namespace gradmeter::kernels
