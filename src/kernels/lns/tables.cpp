#include "kernels/lns/tables.hpp"

#include <cmath>

#include "core/error.hpp"
#include "core/format.hpp"

namespace gradmeter::kernels {

namespace {

std::int32_t nearest(unsigned fraction_bits, std::uint32_t d, bool opposite) {
  return opposite && d == 0 ? 0 : static_cast<std::int32_t>(std::lround(lns_g(fraction_bits, d, opposite)));
}

std::uint32_t count_entries(unsigned fraction_bits) {
  std::uint32_t d = 1;  // both functions fall, in size
  while (nearest(fraction_bits, d, false) != 0 || nearest(fraction_bits, d, true) != 0) ++d;
  return d;
}

LnsKnots knots_for(unsigned fraction_bits, LnsAddition kind) {
  if (fraction_bits < 6 || fraction_bits > 8)
    throw core::UsageError(
        fmt::format("a logarithmic number with {} fraction bits has no table; take 6, 7 or 8", fraction_bits));
  const LnsArc arc = kind == LnsAddition::exact ? LnsArc::parabola : LnsArc::line;
  return make_lns_knots(fraction_bits, arc, count_entries(fraction_bits));
}

}  // namespace

double lns_interpolation_error(bool opposite) { return opposite ? 1.46 : 0.66; }

LnsTables::LnsTables(unsigned fraction_bits, LnsAddition kind)
    : fraction_bits_(fraction_bits), kind_(kind), knots_(knots_for(fraction_bits, kind)) {
  for (std::uint32_t d = 0; d <= entries(); ++d)
    for (const bool opposite : {false, true}) {
      const std::int32_t g =
          kind == LnsAddition::exact ? nearest(fraction_bits, d, opposite) : knots_.g(fraction_bits, d, opposite);
      doubled_.push_back(static_cast<std::int16_t>(2 * g));
    }
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
  if (fraction_bits != 8) knots_for(fraction_bits, kind);  // refuses
  static const LnsTables exact(8, LnsAddition::exact), interpolated(8, LnsAddition::interpolated);
  return of(exact, interpolated);
}

}  // namespace gradmeter::kernels
