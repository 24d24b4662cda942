// SPDX-License-Identifier: Apache-2.0
// The tables for sums in a logarithmic number system: log2(x ± y) = log2 x + G±(d), where x ≥ y > 0 and d = log2 x −
// log2 y. Codes (lns.hpp) are logarithms in units of 2^−F, where F is the number of fraction bits, and so are d and G±
// in this file. G+ and G− also have a form that fits vector registers: at most 64 short arcs, and single entries for
// the part of G− that is too steep for an arc.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace gradmeter::kernels {

/// G−(d) if `opposite`, else G+(d), not rounded: 2^F·log2(1 ± 2^(−d / 2^F)). G−(0) is minus infinity.
double lns_g(unsigned fraction_bits, double d, bool opposite);

/// The kind of an arc, by which G is approximated over a range of d.
enum class LnsArcKind { line, parabola };

/// The form of G+ and G− for vector registers: arcs that cover d < 2^(F+3), which is eight octaves, and single entries
/// of G− where it is too steep for an arc. From the end of the arcs to d = `entries`, G+ is 1 and G− is −1; from
/// `entries` on, both are 0. An arc gives G = (value + (slope + curve·t)·t)·unit, where t is the position in the arc,
/// and each product is shifted right by 16, as vector units do. With w = 2^(F−2), a quarter of an octave:
/// - Lines are w wide, and t runs from 0 to 2^15.
/// - Parabolas of G+ are 2w wide, around the multiples of 2w; those of G− are w wide, and w/4 in the first octave. For
///   both, t is the low 16 bits of d·2^(17−F), signed: between two odd multiples of w it runs from −2^15 to 2^15, so a
///   parabola of G− gets only a part of this range.
struct LnsArcs {
  static constexpr std::size_t first_minus_line = 32;     ///< the index of the first line of G−, behind those of G+
  static constexpr std::size_t first_plus_parabola = 44;  ///< the index of the first parabola of G+, behind those of G−
  /// The additional parabolas of G− in its first octave, which has 16 instead of 4.
  static constexpr std::size_t extra_parabolas = 12;
  /// The number of single entries of G−.
  static constexpr std::uint32_t near_count(LnsArcKind arc) { return arc == LnsArcKind::line ? 256 : 64; }
  /// The unit of an arc's value, slope and curve [2^-16]. For parabolas it is chosen such that the steepest G− fits
  /// into 16 bits, and such that make_lns_arcs finds all parabolas.
  static constexpr std::int16_t unit(LnsArcKind arc) { return arc == LnsArcKind::line ? 1024 : 1400; }
  std::array<std::int16_t, 64> value{}, slope{}, curve{};  ///< of each arc
  /// Entry d is G−(d) rounded, for d < near_count. Entry 0 stands for minus infinity: a code plus this entry is never
  /// positive, and a code that is not positive stands for zero.
  std::array<std::int16_t, 256> near{};
  std::uint32_t entries = 0;  ///< G+ and G− are 0 from this d on
  LnsArcKind arc = LnsArcKind::line;

  /// Computes G± as vector code does, bit for bit.
  std::int32_t g(unsigned fraction_bits, std::uint32_t d, bool opposite) const;
};

/// Finds the arcs. A line goes through the ends of its part of G, and is then shifted to the middle between its largest
/// distances from G. Parabolas near the one through both ends and the middle are tried, until one gives each entry as G
/// rounded to nearest. It is not enough that a parabola is within 0.06 of G, as many are: where G is almost halfway
/// between two integers, the parabola must be on the same side of the halfway point. entries: see `LnsArcs::entries`.
/// Errors: std::logic_error when no candidate will do; a test shows that one is found for each F.
LnsArcs make_lns_arcs(unsigned fraction_bits, LnsArcKind arc, std::uint32_t entries);

/// How the entries of a table are computed. exact: every entry is G± rounded to nearest. interpolated: by 64 straight
/// lines (32 each for G+ and G−), and exact entries where G− is too steep for lines; the error is at most 0.66 codes
/// for G+, and 1.46 for G−.
enum class LnsAddition { exact, interpolated };

/// G+ and G− as tables of integers, for all d.
class LnsTables {
 public:
  LnsTables(unsigned fraction_bits, LnsAddition kind);
  unsigned fraction_bits() const { return fraction_bits_; }
  LnsAddition kind() const { return kind_; }
  /// From this d on, G+ and G− are zero: 2440 with 8 fraction bits, 1092 with 7, 483 with 6.
  std::uint32_t entries() const { return arcs_.entries; }
  /// G−(d) if `opposite`, else G+(d). The table has 0 for G−(0), which is minus infinity, so a caller that adds two
  /// opposite numbers must write zero itself.
  std::int32_t g(std::uint32_t d, bool opposite) const {
    return doubled_[2 * (d < entries() ? d : entries()) + (opposite ? 1 : 0)] / 2;
  }
  /// 2·G+(d) at index 2d and 2·G−(d) at index 2d + 1, [2·(entries() + 1)], as vector code looks them up.
  std::span<const std::int16_t> doubled() const { return doubled_; }
  /// The same tables in the form for vector registers.
  const LnsArcs& arcs() const { return arcs_; }

 private:
  unsigned fraction_bits_;
  LnsAddition kind_;
  LnsArcs arcs_;
  std::vector<std::int16_t> doubled_;
};

/// The tables of a kind and a number of fraction bits. They are made at first use, on any thread.
/// Errors: UsageError when fraction_bits is not 6, 7 or 8.
const LnsTables& lns_tables(unsigned fraction_bits, LnsAddition kind = LnsAddition::exact);

}  // namespace gradmeter::kernels
