// SPDX-License-Identifier: Apache-2.0
// A 16-bit logarithmic number system: a number is stored as its sign and the logarithm of its magnitude, so that a
// product is an addition of integers, and a sum is a look-up in a table.
//
// Word: bit 15 is the sign; bits 14…0 are the code e. Code 0 is zero (always +0); else the number is ±2^((e − 2^14) /
// 2^F), with F fraction bits.
//
// Range: 2^±64 with F = 8, 2^±128 with 7, 2^±256 with 6. Neighbours are a factor of 2^(1/2^F) apart: 0.27 % with F = 8.
// There is no NaN and no infinity: numbers that are too large saturate, and those that are too small become zero.
// LnsEvents counts both.
//
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

/// The arithmetic of the system on the host. Every operation is defined for all 65,536 words (0x8000 reads as zero).
/// Results that the system cannot represent are counted in `events`, unless that is null. Division by zero saturates
/// and counts as an overflow; 0/0 is 0 and counts as a NaN. Cost: one table look-up for each sum. An `Lns` is a single
/// pointer, so it is cheap to copy.
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

/// Convert whole buffers from fp32 (lns_encode) and to fp32 (lns_decode), with the results of `Lns::encode` and
/// `Lns::decode`. Decoded numbers are rounded to fp32; with 6 fraction bits they also saturate, since fp32 has a
/// smaller range. Cost: O(n), without computing logarithms. Errors: std::invalid_argument when lengths differ.
void lns_encode(const Lns&, std::span<const float> values, std::span<Lns16> words, LnsEvents* events = nullptr);
void lns_decode(const Lns&, std::span<const Lns16> words, std::span<float> values);

// C = op(A)·op(B) of numbers in the logarithmic system.

/// How products of matrices are summed. logarithmic: by `Lns`, beginning with zero, in the order k = 0, 1, 2, …, on
/// which the bits depend; underflow and saturation are as in `Lns`, but not counted. linear: numbers are only stored as
/// logarithms: operands are decoded to fp32 and multiplied by a Gemm, and the result is encoded. The bits then depend
/// on the Gemm's library.
enum class LnsSum { logarithmic, linear };

/// A product that is prepared for a shape. Only one thread at a time may use it, since it owns the packed operands.
class LnsGemm {
 public:
  virtual ~LnsGemm() = default;
  /// Shape:  a [m × k], b [k × n] (or transposed, as the GemmShape says), c [m × n]; row-major.
  /// Errors: std::invalid_argument when a length differs.
  virtual void run(std::span<const Lns16> a, std::span<const Lns16> b, std::span<Lns16> c) = 0;
  /// The number of fraction bits, then the kind of tables and the instruction set ("lns f8 exact, AVX3_DL"), or for
  /// linear sums the Gemm's implementation ("lns f8 linear, onednn brg:avx512_core").
  virtual std::string implementation() const = 0;
};

/// Prepares a product. The compute_threads() threads of the thread that calls `run` share the rows of C; with
/// logarithmic sums, the number of threads changes no bit.
///
/// Cost: on AVX-512, logarithmic sums reach at least 1/10 of the fp32 library's speed with exact tables, and 1/12 with
/// interpolated ones or if numbers may leave the range (results/kernels.md); they take 8 bytes of memory for each
/// element of A and 4 to 6 for each of B. Linear sums cost an fp32 product and a pass over each operand.
///
/// Errors: std::invalid_argument on an empty extent, and when the shape asks for bias, activation or accumulation.
std::unique_ptr<LnsGemm> make_lns_gemm(const GemmShape&, const Lns&, LnsSum = LnsSum::logarithmic);

// Softmax cross-entropy computed entirely in logarithms.

/// Computes `softmax_cross_entropy` in the logarithmic system. For a row x with the largest logit m it computes e(j) =
/// exp(x(j) − m), adds up the e(j) in the order j = 0, 1, 2, …, and then computes p(j) = e(j)/sum and the gradient
/// (p(j) − one-hot)·scale. Differences and sums are `Lns::subtract` and `Lns::add`. Quotients and products are exact
/// unless they leave the range. The loss −log p follows from the code of p, which is its logarithm. Only the
/// exponential is computed outside the system: the code of exp(x) is log2(e)·x, in units of a code, computed in float64
/// and rounded to nearest. Logits are encoded first, which changes nothing if they are numbers of the system already; a
/// logit that is NaN becomes zero. The gradient consists of numbers of the system, written as fp32.
CrossEntropy lns_softmax_cross_entropy(const Lns&, std::span<const float> logits, std::span<const std::int32_t> labels,
                                       std::size_t classes, float scale, std::span<float> gradient);

/// A table of exp x for x ≤ 0 [32768]: entry e is the word of exp x for the x whose code is e. Results that are too
/// small for the system are zero.
std::vector<std::uint16_t> lns_exponentials(unsigned fraction_bits);

}  // namespace gradmeter::kernels
