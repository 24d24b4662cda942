// SPDX-License-Identifier: Apache-2.0
// Compares the elements of a result with a float64 reference, one by one, and bounds the error that rounding may cause.
#pragma once
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/problems/problem.hpp"

namespace gradmeter::kernels {

/// The distance of a result from the float64 reference on the same inputs, which are rounded to the storage type.
/// `error` hides one wrong element among millions. `worst` shows it, because each element is judged by itself: by the
/// distance from its reference, divided by the rounding error that is possible there (for a sum of products:
/// `allowed_distance`). Whole numbers must be equal.
struct KernelCaseCheck {
  double error = 0;       ///< ‖result − reference‖ / ‖reference‖ over the checked elements, for the record
  double worst = 0;       ///< the largest quotient of distance and possible rounding error; the result is right up to 1
  double zero_share = 0;  ///< share of zeros in the result; if it is large, the data was wrong
  bool right() const { return worst <= 1; }  // false for NaN
};

/// A sum of products in float64, and the magnitudes by which the error of a float sum is bounded.
struct ReferenceSum {
  double value = 0;
  double absolute_sum = 0;  ///< sum of |a·b|
  double squares = 0;       ///< sum of (a·b)²
  std::size_t terms = 0;    ///< number of products; 0: the element is zero for any data
  void add(double a, double b) {
    value += a * b;
    absolute_sum += std::fabs(a * b);
    squares += a * b * a * b;
    ++terms;
  }
};

/// Element `index` of C = op(A)·op(B) by its definition, where C holds the results of all `count` products one after
/// another. `a` and `b` read elements.
template <class A, class B>
ReferenceSum product_at(const GemmShape& s, const A& a, const B& b, std::size_t index) {
  const std::size_t row_of_all = index / s.n, column = index % s.n, product = row_of_all / s.m, row = row_of_all % s.m;
  const std::size_t first_a = product * s.m * s.k, first_b = product * s.k * s.n;
  const bool ta = s.transpose_a == Transpose::yes, tb = s.transpose_b == Transpose::yes;
  ReferenceSum sum;
  for (std::size_t l = 0; l < s.k; ++l)
    sum.add(a(first_a + (ta ? l * s.m + row : row * s.k + l)), b(first_b + (tb ? column * s.k + l : l * s.n + column)));
  return sum;
}

/// The possible error of a sum: u·|value| + 4·v·√terms·absolute_sum, where u is the roundoff of the type that results
/// are stored in, and v that of an addition (2^-24 for fp32). It covers sums in any order, of any terms, and additions
/// that cut digits off. 0 for precisions whose sums are exact.
double allowed_distance(const ReferenceSum&, Precision);
/// The possible error of a sum of random terms of either sign, if additions round to nearest, as on a host: u·|value| +
/// 4·v·√terms·min(absolute_sum, 2·√squares). Partial sums of such terms grow as √terms, as the result does, so the
/// bound stays a small share of a result of millions of terms; with `absolute_sum` it would exceed the result.
double allowed_distance_of_random_terms(const ReferenceSum&, Precision);

class ElementCheck {
 public:
  /// `counts`: false for an element that is zero by the shape alone: it is checked, but does not count as a suspicious
  /// zero.
  void add(double result, double reference, double allowed, bool counts = true);
  KernelCaseCheck verdict() const;

 private:
  double squared_distance_ = 0, squared_reference_ = 0, worst_ = 0;
  std::size_t counted_ = 0, zeros_ = 0;
};

/// At most `count` indices out of [0, n), n > 0, but at least one, in ascending order. If n is larger than `count`,
/// they are the first, the last, and a random index from each of the equal stretches between. (Indices at equal
/// distances could miss whole columns of a matrix.)
std::vector<std::size_t> sample_places(std::size_t n, std::size_t count, std::uint64_t seed);

}  // namespace gradmeter::kernels
