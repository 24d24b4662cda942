// Products and sums of logarithmic numbers, one at a time, for the host and for a GPU's threads; `table(d, opposite)`
// is G±(d) (tables.hpp).
#pragma once
#include <cstdint>

#include "core/host_device.hpp"

namespace gradmeter::kernels {

struct Lns16 {
  static constexpr std::uint16_t sign_bit = 0x8000, code_mask = 0x7fff;
  static constexpr std::int32_t one = 1 << 14, largest = 0x7fff;  ///< codes
  std::uint16_t bits = 0;

  static constexpr Lns16 from(bool negative, std::int32_t code) {
    return {static_cast<std::uint16_t>((negative ? sign_bit : 0) | code)};
  }
  constexpr std::int32_t code() const { return bits & code_mask; }
  constexpr bool negative() const { return (bits & sign_bit) != 0; }
  constexpr bool zero() const { return code() == 0; }
  constexpr Lns16 operator-() const { return zero() ? *this : Lns16{static_cast<std::uint16_t>(bits ^ sign_bit)}; }
  bool operator==(const Lns16&) const = default;
};

struct LnsEvents {
  std::uint64_t underflows = 0;  ///< not zero, became zero
  std::uint64_t overflows = 0;   ///< became the largest number
  std::uint64_t nans = 0;        ///< not a number, became zero
  bool operator==(const LnsEvents&) const = default;
};

/// The word of a code that may be outside the range.
constexpr Lns16 lns_word(bool negative, std::int32_t code, LnsEvents* events) {
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

constexpr Lns16 lns_multiply(Lns16 x, Lns16 y, LnsEvents* events) {
  if (x.zero() || y.zero()) return {};
  return lns_word(x.negative() != y.negative(), x.code() + y.code() - Lns16::one, events);
}

/// Division by zero saturates and counts as an overflow; 0/0 is 0 and counts as a NaN.
constexpr Lns16 lns_divide(Lns16 x, Lns16 y, LnsEvents* events) {
  if (y.zero() && x.zero()) {
    if (events) ++events->nans;
    return {};
  }
  if (x.zero()) return {};
  if (y.zero()) return lns_word(x.negative(), Lns16::largest + 1, events);
  return lns_word(x.negative() != y.negative(), x.code() - y.code() + Lns16::one, events);
}

/// −log x of a number up to 1. Zero has none, and is taken for the smallest number.
constexpr double lns_negative_log(unsigned fraction_bits, Lns16 x) {
  constexpr double ln2 = 0.693147180559945309417;
  return (Lns16::one - (x.code() < 1 ? 1 : x.code())) * ln2 / static_cast<double>(1U << fraction_bits);
}

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

/// A compensated sum (LnsKahan): y = change − c; t = w + y; c = (t − w) − y; w = t.
template <class Table>
GRADMETER_HOST_DEVICE constexpr void lns_kahan_add(Lns16& w, Lns16& c, Lns16 change, const Table& table,
                                                   LnsEvents* events) {
  const Lns16 y = lns_add(change, -c, table, events), t = lns_add(w, y, table, events);
  c = lns_add(lns_add(t, -w, table, events), -y, table, events);
  w = t;
}

}  // namespace gradmeter::kernels
