// Sums in a logarithmic number system are table look-ups: log2(x ± y) = log2 x + G±(d), d = log2 x − log2 y.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace gradmeter::kernels {

/// exact: every entry is G± rounded to nearest. interpolated: straight lines between 64 knots, made for registers that
/// hold whole tables; errors of lns_interpolation_error at most.
enum class LnsAddition { exact, interpolated };

/// What a vector register computes G± from. With r = d mod the width of a segment (2^(F−2), a quarter of an octave):
/// G(d) = (value[s] + ((slope[s]·(r·2^15 / width)) >> 16)) >> lns_knot_bits. G− is singular at 0, where no line helps:
/// its first 256 entries are exact and kept whole.
struct LnsKnots {
  static constexpr std::size_t count = 64, near_count = 256;
  /// [0] for equal signs (G+), [1] for opposite ones (G−).
  std::array<std::array<std::int16_t, count>, 2> value{}, slope{};
  std::array<std::int16_t, near_count> near{};
};
inline constexpr int lns_knot_bits = 6;

/// G+ and G− in units of one code, for each d from 0 to entries(); 0 from there on.
class LnsTables {
 public:
  LnsTables(unsigned fraction_bits, LnsAddition kind);
  unsigned fraction_bits() const { return fraction_bits_; }
  LnsAddition kind() const { return kind_; }
  /// From this d on both are zero: 2440 with 8 fraction bits, 1092 with 7.
  std::uint32_t entries() const { return entries_; }
  /// G−(0) is minus infinity; the entry is 0 and who adds two opposite numbers writes zero instead.
  std::int32_t g(std::uint32_t d, bool opposite) const {
    return doubled_[2 * (d < entries_ ? d : entries_) + (opposite ? 1 : 0)] / 2;
  }
  /// 2·G+(d) at 2d and 2·G−(d) at 2d + 1, [2·(entries() + 1)]: as vector code indexes it.
  std::span<const std::int16_t> doubled() const { return doubled_; }
  /// Empty of meaning for exact tables.
  const LnsKnots& knots() const { return knots_; }

 private:
  std::int32_t entry(std::uint32_t d, bool opposite) const;
  unsigned fraction_bits_;
  LnsAddition kind_;
  LnsKnots knots_;
  std::uint32_t entries_ = 0;
  std::vector<std::int16_t> doubled_;
};

/// One table for each kind and number of fraction bits, built at first use by any thread.
/// Errors: UsageError when fraction_bits is not 6, 7 or 8.
const LnsTables& lns_tables(unsigned fraction_bits, LnsAddition kind = LnsAddition::exact);

/// 2^F·log2(1 ± 2^(−d / 2^F)) in double, not rounded; minus infinity for G−(0).
double lns_g(unsigned fraction_bits, double d, bool opposite);

/// The largest distance of an interpolated entry from lns_g, in codes; an exact one has 0.5.
double lns_interpolation_error(bool opposite);

}  // namespace gradmeter::kernels
