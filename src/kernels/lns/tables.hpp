// The tables for sums in a logarithmic number system: log2(x ± y) = log2 x + G±(d), d = log2 x − log2 y.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/lns/knots.hpp"

namespace gradmeter::kernels {

/// exact: every entry is G± rounded to nearest. interpolated: straight lines between 64 knots (32 for each sign), and
/// exact entries where G− is too steep for them; lns_interpolation_error says how far off.
enum class LnsAddition { exact, interpolated };

/// G+ and G− in units of one code.
class LnsTables {
 public:
  LnsTables(unsigned fraction_bits, LnsAddition kind);
  unsigned fraction_bits() const { return fraction_bits_; }
  LnsAddition kind() const { return kind_; }
  /// From this d on both are zero: 2440 with 8 fraction bits, 1092 with 7, 483 with 6.
  std::uint32_t entries() const { return knots_.entries; }
  /// G−(0) is minus infinity; the entry is 0, and a caller that adds two opposite numbers must write zero itself.
  std::int32_t g(std::uint32_t d, bool opposite) const {
    return doubled_[2 * (d < entries() ? d : entries()) + (opposite ? 1 : 0)] / 2;
  }
  /// 2·G+(d) at 2d and 2·G−(d) at 2d + 1, [2·(entries() + 1)]: as vector code indexes it.
  std::span<const std::int16_t> doubled() const { return doubled_; }
  /// The same numbers for registers.
  const LnsKnots& knots() const { return knots_; }

 private:
  unsigned fraction_bits_;
  LnsAddition kind_;
  LnsKnots knots_;
  std::vector<std::int16_t> doubled_;
};

/// One table for each kind and number of fraction bits, built at first use by any thread.
/// Errors: UsageError when fraction_bits is not 6, 7 or 8.
const LnsTables& lns_tables(unsigned fraction_bits, LnsAddition kind = LnsAddition::exact);

/// The largest distance of an interpolated entry from lns_g, in codes; an exact one has 0.5.
double lns_interpolation_error(bool opposite);

}  // namespace gradmeter::kernels
