// SPDX-License-Identifier: Apache-2.0
// A 16-bit logarithmic number system: a number is its sign and the logarithm of its size, so that a product is an
// integer addition and a sum is a look-up.
// Word:   bit 15 sign; bits 14…0 the code e: 0 is zero (always +0), else the number is ±2^((e − 2^14) / 2^F), with F
// fraction bits.
// Range:  2^±64 with F = 8, 2^±128 with 7, 2^±256 with 6; neighbours are a factor of 2^(1/2^F) apart: 0.27 % with 8.
// There is no NaN and no infinity: numbers that are too large saturate, those too small become zero, and both are
// counted.
// Source: Coleman et al., "Arithmetic on the European logarithmic microprocessor", IEEE Trans. Computers 49(7), 2000,
// for the system. The format of words and the rounding are our own.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kernels/gemm/gemm.hpp"
#include "kernels/lns/arithmetic.hpp"
#include "kernels/lns/tables.hpp"
#include "kernels/pointwise/pointwise.hpp"

namespace gradmeter::kernels {

/// The arithmetic. Every operation is defined for all 65,536 words (0x8000 reads as zero), and counts into `events` if
/// that is given. Division by zero saturates and counts as an overflow; 0/0 is 0 and counts as a NaN. Cost: one table
/// look-up for each sum. An `Lns` is a single pointer, so it is cheap to copy.
class Lns {
 public:
  /// Errors: UsageError when fraction_bits is not 6, 7 or 8.
  explicit Lns(unsigned fraction_bits = 8, LnsAddition addition = LnsAddition::exact)
      : tables_(&lns_tables(fraction_bits, addition)) {}

  /// Rounds x to the number whose logarithm is nearest to that of x.
  Lns16 encode(double x, LnsEvents* events = nullptr) const;
  double decode(Lns16 x) const;

  Lns16 multiply(Lns16 x, Lns16 y, LnsEvents* events = nullptr) const { return lns_multiply(x, y, events); }
  Lns16 divide(Lns16 x, Lns16 y, LnsEvents* events = nullptr) const { return lns_divide(x, y, events); }
  /// The result's code is the larger code plus G±(d), where d is the difference of the codes (tables.hpp). The order of
  /// x and y does not matter.
  Lns16 add(Lns16 x, Lns16 y, LnsEvents* events = nullptr) const {
    struct Table {
      const LnsTables& tables;
      std::int32_t operator()(std::uint32_t d, bool opposite) const { return tables.g(d, opposite); }
    };
    return lns_add(x, y, Table{*tables_}, events);
  }
  Lns16 subtract(Lns16 x, Lns16 y, LnsEvents* events = nullptr) const { return add(x, -y, events); }

  const LnsTables& tables() const { return *tables_; }
  unsigned fraction_bits() const { return tables_->fraction_bits(); }

 private:
  const LnsTables* tables_;
};

/// Both convert whole buffers from and to fp32, with the results of `encode` and `decode` (decode rounded to fp32; with
/// 6 fraction bits also saturated, since fp32 has a smaller range). Shape: equal lengths. Cost: O(n); no logarithm is
/// computed. Errors: std::invalid_argument when lengths differ.
void lns_encode(const Lns&, std::span<const float> values, std::span<Lns16> words, LnsEvents* events = nullptr);
void lns_decode(const Lns&, std::span<const Lns16> words, std::span<float> values);

// C = op(A)·op(B) of numbers in the logarithmic system.

/// logarithmic: products and sums are those of `Lns`, from zero in the order k = 0, 1, 2, …; the bits depend on this
/// order. Underflow and saturation are as in `Lns`, but not counted. linear: numbers are only stored as logarithms.
/// Operands are decoded to fp32 and multiplied by the fp32 library, and the result is encoded. The bits of the result
/// depend on the library, as those of a Gemm do.
enum class LnsSum { logarithmic, linear };

/// A prepared problem. Only one thread at a time may use it, since it owns the packed operands.
class LnsGemm {
 public:
  virtual ~LnsGemm() = default;
  /// Shape:  a [m × k], b [k × n] (or as the problem transposes them), c [m × n]; row-major.
  /// Errors: std::invalid_argument when a length differs.
  virtual void run(std::span<const Lns16> a, std::span<const Lns16> b, std::span<Lns16> c) = 0;
  /// The implementation that computes it: "lns f8 exact, AVX3_DL"; "lns f8 linear, onednn brg:avx512_core".
  virtual std::string implementation() const = 0;
};

/// The calling thread's compute_threads() threads share the rows of C; their number does not change a bit.
/// Cost:   on AVX-512 logarithmic sums reach at least 1/10 of the fp32 library's speed with exact tables, and 1/12 with
///         interpolated ones or where numbers may leave the range (results/kernels.md). linear: the fp32 product and a
///         pass over each operand. Memory: 8 bytes for each element of A and 4 to 6 for each of B.
/// Errors: std::invalid_argument on an empty extent, and when the problem asks for bias, activation or accumulation.
std::unique_ptr<LnsGemm> make_lns_gemm(const GemmShape&, const Lns&, LnsSum = LnsSum::logarithmic);

// Softmax cross-entropy computed entirely in logarithms.

/// `softmax_cross_entropy` in the logarithmic system. For a row x with the largest logit m it computes e(j) = exp(x(j)
/// − m), adds up the e(j) in the order j = 0, 1, 2, …, and then computes p(j) = e(j)/sum and the gradient (p(j) −
/// one-hot)·scale. Differences and sums are `Lns::subtract` and `Lns::add`. The quotient and the product are exact
/// unless they leave the range; −log p needs only the code of p, which is its logarithm. Only the exponential is
/// computed outside the system: the code of exp(x) is log2(e)·x, in units of a code, computed in float64 and rounded to
/// nearest. Logits are encoded first, which changes nothing if they are numbers of the system already; a logit that is
/// NaN becomes zero. The gradient is written as fp32, and is a number of the system.
CrossEntropy lns_softmax_cross_entropy(const Lns&, std::span<const float> logits, std::span<const std::int32_t> labels,
                                       std::size_t classes, float scale, std::span<float> gradient);

/// A table of exp x for x ≤ 0 [32768]: entry e is the word of exp x for the x whose code is e. Results that are too
/// small for the system are zero.
std::vector<std::uint16_t> lns_exponentials(unsigned fraction_bits);

}  // namespace gradmeter::kernels
