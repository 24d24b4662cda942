// SPDX-License-Identifier: Apache-2.0
// The tables for sums in a logarithmic number system: log2(x ± y) = log2 x + G±(d), where x ≥ y > 0 and d = log2 x −
// log2 y. G+ and G− also have a form that fits vector registers: at most 64 short arcs, and entries for the part of G−
// that is too steep for an arc.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace gradmeter::kernels {

/// G±(d) in units of one code, not rounded: 2^F·log2(1 ± 2^(−d / 2^F)). It is minus infinity for G−(0). opposite: G−,
/// else G+.
double lns_g(unsigned fraction_bits, double d, bool opposite);

enum class LnsArc { line, parabola };

/// The form of G+ and G− for vector registers: arcs that cover eight octaves, 2^(F+3) values of d, and G− itself where
/// it is too steep for an arc. Beyond the arcs, G+ is 1 and G− is −1 up to d = `entries`, and then 0. With t the
/// position in the arc and products shifted right by 16 as in vector units: G = (value + (slope + curve·t)·t)·unit.
/// Lines have a width of w = 2^(F−2) each, a quarter of an octave, and t is from 0 to 2^15. Parabolas are 2w wide for
/// G+, around the multiples of 2w; for G− they are w wide, and w/4 in the first octave. Their t is from −2^15 to 2^15
/// between one odd multiple of w and the next, since that is what a shift of d leaves.
struct LnsKnots {
  static constexpr std::size_t arcs = 32;         ///< the index of the first line of G−, behind those of G+
  static constexpr std::size_t first_equal = 44;  ///< the index of the first parabola of G+, behind those of G−
  static constexpr std::size_t narrow = 12;  ///< parabolas that G− has more in its first octave than a quarter each
  static constexpr std::uint32_t near_count(LnsArc arc) { return arc == LnsArc::line ? 256 : 64; }
  /// In 2^-16. With that of the parabolas the steepest G− fits into 16 bits, and the search finds all of them.
  static constexpr std::int16_t unit(LnsArc arc) { return arc == LnsArc::line ? 1024 : 1400; }
  std::array<std::int16_t, 64> value{}, slope{}, curve{};
  /// G−(d) itself for d < near_count. The entry at 0 makes every code one that is not positive.
  std::array<std::int16_t, 256> near{};
  std::uint32_t entries = 0;  ///< G is 0 from this d on
  LnsArc arc = LnsArc::line;

  /// Computes G± as vector code does, bit for bit.
  std::int32_t g(unsigned fraction_bits, std::uint32_t d, bool opposite) const;
};

/// line: the straight line through the ends of an arc of G, shifted by half of its largest distance from G. parabola:
/// the first one found, in a search around the parabola through both ends and the middle, that gives every entry as G
/// rounded to nearest. It is not enough that a parabola is within 0.06 of G, as many are: where G is almost halfway
/// between two integers, the parabola must be on the same side of the halfway point. entries: see `LnsKnots::entries`.
/// Errors: std::logic_error when the search finds none; a test shows that it finds one for each F.
LnsKnots make_lns_knots(unsigned fraction_bits, LnsArc arc, std::uint32_t entries);

/// exact: every entry is G± rounded to nearest. interpolated: straight lines between 64 knots (32 for each sign), and
/// exact entries where G− is too steep for them. The error is at most 0.66 codes for G+, and 1.46 for G−.
enum class LnsAddition { exact, interpolated };

/// G+ and G− in units of one code.
class LnsTables {
 public:
  LnsTables(unsigned fraction_bits, LnsAddition kind);
  unsigned fraction_bits() const { return fraction_bits_; }
  LnsAddition kind() const { return kind_; }
  /// From this d on both are zero: 2440 with 8 fraction bits, 1092 with 7, 483 with 6.
  std::uint32_t entries() const { return knots_.entries; }
  /// G−(0) is minus infinity. Its entry is 0, so a caller that adds two opposite numbers must write zero itself.
  std::int32_t g(std::uint32_t d, bool opposite) const {
    return doubled_[2 * (d < entries() ? d : entries()) + (opposite ? 1 : 0)] / 2;
  }
  /// 2·G+(d) at 2d and 2·G−(d) at 2d + 1, [2·(entries() + 1)]: as vector code indexes it.
  std::span<const std::int16_t> doubled() const { return doubled_; }
  /// The same tables in the form for vector registers.
  const LnsKnots& knots() const { return knots_; }

 private:
  unsigned fraction_bits_;
  LnsAddition kind_;
  LnsKnots knots_;
  std::vector<std::int16_t> doubled_;
};

/// The tables of a kind and a number of fraction bits. They are made at first use, on any thread.
/// Errors: UsageError when fraction_bits is not 6, 7 or 8.
const LnsTables& lns_tables(unsigned fraction_bits, LnsAddition kind = LnsAddition::exact);

}  // namespace gradmeter::kernels
