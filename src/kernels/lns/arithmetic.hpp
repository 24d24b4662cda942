// SPDX-License-Identifier: Apache-2.0
// Products and sums of logarithmic numbers (lns.hpp), one at a time, for the host and for a GPU's threads. In all
// functions, `table` is a callable: table(d, opposite) is G−(d) if `opposite`, else G+(d) (tables.hpp). `events`: the
// counts to which results out of range are added; null: nothing is counted.
#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "core/host_device.hpp"

namespace gradmeter::kernels {

/// A number of the logarithmic system: a word of 16 bits (lns.hpp).
struct Lns16 {
  static constexpr std::uint16_t sign_bit = 0x8000, code_mask = 0x7fff;
  static constexpr std::int32_t one = 1 << 14, largest = 0x7fff;  ///< the codes of 1 and of the largest number
  std::uint16_t bits = 0;

  GRADMETER_HOST_DEVICE static constexpr Lns16 from(bool negative, std::int32_t code) {
    return {static_cast<std::uint16_t>((negative ? sign_bit : 0) | code)};
  }
  GRADMETER_HOST_DEVICE constexpr std::int32_t code() const { return bits & code_mask; }
  GRADMETER_HOST_DEVICE constexpr bool negative() const { return (bits & sign_bit) != 0; }
  GRADMETER_HOST_DEVICE constexpr bool zero() const { return code() == 0; }
  GRADMETER_HOST_DEVICE constexpr Lns16 operator-() const {
    return zero() ? *this : Lns16{static_cast<std::uint16_t>(bits ^ sign_bit)};
  }
  bool operator==(const Lns16&) const = default;
};

/// Counts of results that the logarithmic system cannot represent.
struct LnsEvents {
  std::uint64_t underflows = 0;  ///< nonzero results that became zero
  std::uint64_t overflows = 0;   ///< results that became the largest number
  std::uint64_t nans = 0;        ///< results that are not a number, and became zero
  bool operator==(const LnsEvents&) const = default;
};

/// Makes a word from a sign and a code. A code outside the range saturates or becomes zero.
GRADMETER_HOST_DEVICE constexpr Lns16 lns_word(bool negative, std::int32_t code, LnsEvents* events) {
  if (code > Lns16::largest) {
    if (events) ++events->overflows;
    return Lns16::from(negative, Lns16::largest);
  }
  if (code < 1) {
    if (events) ++events->underflows;
    return {};
  }
  return Lns16::from(negative, code);
}

GRADMETER_HOST_DEVICE constexpr Lns16 lns_multiply(Lns16 x, Lns16 y, LnsEvents* events) {
  if (x.zero() || y.zero()) return {};
  return lns_word(x.negative() != y.negative(), x.code() + y.code() - Lns16::one, events);
}

/// x / y. Division by zero saturates and counts as an overflow; 0/0 is 0 and counts as a NaN.
GRADMETER_HOST_DEVICE constexpr Lns16 lns_divide(Lns16 x, Lns16 y, LnsEvents* events) {
  if (y.zero() && x.zero()) {
    if (events) ++events->nans;
    return {};
  }
  if (x.zero()) return {};
  if (y.zero()) return lns_word(x.negative(), Lns16::largest + 1, events);
  return lns_word(x.negative() != y.negative(), x.code() - y.code() + Lns16::one, events);
}

/// −log x of a number x ≤ 1. Zero has no logarithm, so the smallest positive number stands for it.
GRADMETER_HOST_DEVICE constexpr double lns_negative_log(unsigned fraction_bits, Lns16 x) {
  constexpr double ln2 = 0.693147180559945309417;
  return (Lns16::one - (x.code() < 1 ? 1 : x.code())) * ln2 / static_cast<double>(1U << fraction_bits);
}

// `table` may be the host's, which a GPU's threads cannot call; nvcc must not warn about that.
#ifdef __CUDACC__
#pragma nv_exec_check_disable
#endif
template <class Table>
GRADMETER_HOST_DEVICE constexpr Lns16 lns_add(Lns16 x, Lns16 y, const Table& table, LnsEvents* events) {
  if (x.zero()) return y.zero() ? Lns16{} : y;
  if (y.zero()) return x;
  const bool opposite = x.negative() != y.negative(), y_larger = x.code() < y.code();
  const Lns16 larger = y_larger ? y : x, smaller = y_larger ? x : y;
  const std::int32_t d = larger.code() - smaller.code();
  if (d == 0 && opposite) return {};
  return lns_word(larger.negative(), larger.code() + table(static_cast<std::uint32_t>(d), opposite), events);
}

/// Adds `change` to a compensated sum w − c, where c holds what rounding has added to w so far. The steps: y = change −
/// c; t = w + y; c = (t − w) − y; w = t. In gradient descent, change = (−η)·g.
/// Source: Kahan, "Further remarks on reducing truncation errors", CACM 8(1), 1965.
template <class Table>
GRADMETER_HOST_DEVICE constexpr void lns_kahan_add(Lns16& w, Lns16& c, Lns16 change, const Table& table,
                                                   LnsEvents* events) {
  const Lns16 y = lns_add(change, -c, table, events), t = lns_add(w, y, table, events);
  c = lns_add(lns_add(t, -w, table, events), -y, table, events);
  w = t;
}

// Conversions between fp32 and logarithmic numbers by tables, one at a time, for the host and for a GPU's threads.

/// Pointers to the tables of a conversion, which are in memory of the host or of a device. With F fraction bits, a code
/// is Lns16::one + 2^F·exponent + fraction, where `fraction` is from 0 to 2^F.
struct LnsConversion {
  static constexpr unsigned mantissa_bits = 23;  ///< mantissa bits of fp32
  /// fp32's mantissas are divided into 2^9 cells. A cell is narrower than the range of mantissas that round to the same
  /// fraction, so at most one such range begins inside a cell.
  static constexpr unsigned cell_bits = 9;

  const float* word_values = nullptr;             ///< the fp32 value of each word, [65536]
  const std::uint16_t* first_fraction = nullptr;  ///< for each cell, the fraction of its first mantissa, [512]
  /// For each fraction, the first mantissa that rounds to it; behind the last, 2^32 − 1; [258].
  const std::uint32_t* first_mantissa = nullptr;
  unsigned fraction_bits = 0;
};

/// Lns::encode of a float by the tables, without computing a logarithm.
GRADMETER_HOST_DEVICE constexpr Lns16 lns_encode(const LnsConversion& t, float value, LnsEvents* events) {
  constexpr std::uint32_t hidden_one = 1U << LnsConversion::mantissa_bits;
  const auto bits = core::bits_as<std::uint32_t>(value), magnitude = bits & 0x7fffffff;
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
  const std::uint32_t guess = t.first_fraction[mantissa >> (LnsConversion::mantissa_bits - LnsConversion::cell_bits)];
  const auto fraction = static_cast<std::int32_t>(guess + (mantissa >= t.first_mantissa[guess + 1] ? 1 : 0));
  return lns_word(bits >> 31 != 0, (exponent - 127) * (1 << t.fraction_bits) + fraction + Lns16::one, events);
}

/// Lns::decode rounded to fp32.
GRADMETER_HOST_DEVICE constexpr float lns_decode(const LnsConversion& t, Lns16 x) { return t.word_values[x.bits]; }

/// Owns the host's tables for one number of fraction bits. lns_conversion() makes them at first use, on any thread.
/// Errors: UsageError when fraction_bits is not 6, 7 or 8.
struct LnsConversionTables {
  std::vector<float> word_values;
  std::array<std::uint16_t, std::size_t{1} << LnsConversion::cell_bits> first_fraction{};
  std::array<std::uint32_t, 258> first_mantissa{};
  unsigned fraction_bits;

  explicit LnsConversionTables(unsigned fraction_bits);
  LnsConversion view() const {
    return {word_values.data(), first_fraction.data(), first_mantissa.data(), fraction_bits};
  }
};
const LnsConversionTables& lns_conversion(unsigned fraction_bits);

// Updates of weights that are numbers of the logarithmic system, but stored as fp32.

struct LnsUpdateRule {
  unsigned fraction_bits = 8;
  bool kahan = false;  ///< sums are Kahan's: a carry keeps what rounding loses
};

/// Adds a change to one weight: converts w and the carry to words, adds, and converts them back to fp32. carry: null
/// without Kahan's sum.
template <class Table>
GRADMETER_HOST_DEVICE constexpr void lns_change(const LnsConversion& t, const Table& table, float& w, float* carry,
                                                Lns16 change) {
  Lns16 word = lns_encode(t, w, nullptr);
  if (carry) {
    Lns16 kept = lns_encode(t, *carry, nullptr);
    lns_kahan_add(word, kept, change, table, nullptr);
    *carry = lns_decode(t, kept);
  } else {
    word = lns_add(word, change, table, nullptr);
  }
  w = lns_decode(t, word);
}

/// Rounds each weight to the nearest number of the logarithmic system.
void lns_round(unsigned fraction_bits, std::span<float> weights);
/// w becomes w + (target − w), where the difference is first rounded to a word. carry: as long as w, or empty without
/// Kahan's sum. Cost: 12 bytes an element, with a carry 20, and one look-up for each sum.
void lns_update(LnsUpdateRule, std::span<float> w, std::span<const float> target, std::span<float> carry);
/// w becomes w + (−step)·g, by the logarithmic system's product and sum. carry and cost: as for lns_update.
void lns_descend(LnsUpdateRule, std::span<float> w, std::span<const float> g, float step, std::span<float> carry);

}  // namespace gradmeter::kernels
