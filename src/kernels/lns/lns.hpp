// A 16-bit logarithmic number system: a number is its sign and the logarithm of its size, so that a product is an
// integer addition and a sum is a look-up.
// Word:   bit 15 sign; bits 14…0 the code e: 0 is zero (always +0), else the number is ±2^((e − 2^14) / 2^F).
// Range:  2^±64 with F = 8 fraction bits, 2^±128 with 7, 2^±256 with 6; neighbours differ by 2^(1/2^F): 0.27 % with 8.
// There is no NaN and no infinity: too large numbers saturate, too small ones become zero, and both are counted.
// Source: Coleman et al., "Arithmetic on the European logarithmic microprocessor", IEEE Trans. Computers 49(7), 2000,
// for the system; word and rounding are our own.
#pragma once
#include <cstdint>
#include <span>

#include "kernels/lns/arithmetic.hpp"
#include "kernels/lns/tables.hpp"

namespace gradmeter::kernels {

/// The arithmetic. Every operation is defined for all 65,536 words (0x8000 reads as zero) and counts into `events`
/// where given. Division by zero saturates and counts as an overflow; 0/0 is 0 and counts as a NaN.
/// Cost: one table look-up a sum; `Lns` itself is two words, to be copied.
class Lns {
 public:
  /// Errors: UsageError when fraction_bits is not 6, 7 or 8.
  explicit Lns(unsigned fraction_bits = 8, LnsAddition addition = LnsAddition::exact)
      : tables_(&lns_tables(fraction_bits, addition)) {}

  /// Nearest in the log domain.
  Lns16 encode(double x, LnsEvents* events = nullptr) const;
  double decode(Lns16 x) const;

  Lns16 multiply(Lns16 x, Lns16 y, LnsEvents* events = nullptr) const { return lns_multiply(x, y, events); }
  Lns16 divide(Lns16 x, Lns16 y, LnsEvents* events = nullptr) const { return lns_divide(x, y, events); }
  /// max + G±(d), d the difference of the codes. The order of x and y does not matter.
  Lns16 add(Lns16 x, Lns16 y, LnsEvents* events = nullptr) const {
    return lns_add(
        x, y, [this](std::uint32_t d, bool opposite) { return tables_->g(d, opposite); }, events);
  }
  Lns16 subtract(Lns16 x, Lns16 y, LnsEvents* events = nullptr) const { return add(x, -y, events); }

  const LnsTables& tables() const { return *tables_; }
  unsigned fraction_bits() const { return tables_->fraction_bits(); }

 private:
  const LnsTables* tables_;
};

/// A compensated sum: one more word keeps what rounding took, so that w + c is the value.
/// y = change − c; t = w + y; c = (t − w) − y; w = t. For a step of gradient descent, change = (−η)·g.
/// Source: Kahan, "Further remarks on reducing truncation errors", CACM 8(1), 1965.
struct LnsKahan {
  Lns16 w, c;
  void add(const Lns& lns, Lns16 change, LnsEvents* events = nullptr);
};

/// Whole buffers, from and to fp32, with the results of `encode` and `decode` (decode rounded to fp32; with 6 fraction
/// bits also saturated, where fp32's range ends first).
/// Shape:  equal lengths. Cost: O(n), and no logarithm is taken.
/// Errors: std::invalid_argument when lengths differ.
void lns_encode(const Lns&, std::span<const float> values, std::span<Lns16> words, LnsEvents* events = nullptr);
void lns_decode(const Lns&, std::span<const Lns16> words, std::span<float> values);

}  // namespace gradmeter::kernels
