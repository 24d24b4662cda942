// Between fp32 and logarithmic numbers by tables, one at a time, for the host and for a GPU's threads.
#pragma once
#include <array>
#include <bit>
#include <cstdint>
#include <vector>

#include "kernels/lns/arithmetic.hpp"

namespace gradmeter::kernels {

/// The tables in memory of the host or of a device.
struct LnsConversion {
  static constexpr unsigned mantissa_bits = 23;  ///< of fp32
  static constexpr unsigned cell_bits = 9;  ///< a cell of 2^-9 is narrower than any code: one begins inside at most

  const float* number = nullptr;         ///< of each word, [65536]
  const std::uint16_t* code = nullptr;   ///< in which each cell of fp32's mantissas begins, [512]
  const std::uint32_t* begin = nullptr;  ///< the first mantissa of code i, [258]
  unsigned fraction_bits = 0;
};

/// Lns::encode of a float: no logarithm is taken.
constexpr Lns16 lns_encode(const LnsConversion& t, float value, LnsEvents* events) {
  constexpr std::uint32_t hidden_one = 1U << LnsConversion::mantissa_bits;
  const auto bits = std::bit_cast<std::uint32_t>(value), magnitude = bits & 0x7fffffff;
  if (magnitude == 0) return {};
  if (magnitude > 0x7f800000) {
    if (events) ++events->nans;
    return {};
  }
  auto exponent = static_cast<std::int32_t>(magnitude >> LnsConversion::mantissa_bits);
  std::uint32_t mantissa = magnitude & (hidden_one - 1);
  if (exponent == 0) {
    for (exponent = 1; (mantissa & hidden_one) == 0; --exponent) mantissa <<= 1;
    mantissa &= hidden_one - 1;
  }
  if (magnitude == 0x7f800000) exponent = 1 << 16;  // beyond every code
  const std::uint32_t guess = t.code[mantissa >> (LnsConversion::mantissa_bits - LnsConversion::cell_bits)];
  const auto fraction = static_cast<std::int32_t>(guess + (mantissa >= t.begin[guess + 1] ? 1 : 0));
  return lns_word(bits >> 31 != 0, (exponent - 127) * (1 << t.fraction_bits) + fraction + Lns16::one, events);
}

/// Lns::decode rounded to fp32.
constexpr float lns_decode(const LnsConversion& t, Lns16 x) { return t.number[x.bits]; }

/// The tables of a system, built at first use by any thread.
/// Errors: UsageError when fraction_bits is not 6, 7 or 8.
struct LnsConversionTables {
  std::vector<float> number;
  std::array<std::uint16_t, std::size_t{1} << LnsConversion::cell_bits> code{};
  std::array<std::uint32_t, 258> begin{};
  unsigned fraction_bits;

  explicit LnsConversionTables(unsigned fraction_bits);
  LnsConversion view() const { return {number.data(), code.data(), begin.data(), fraction_bits}; }
};
const LnsConversionTables& lns_conversion(unsigned fraction_bits);

}  // namespace gradmeter::kernels
