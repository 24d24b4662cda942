// SPDX-License-Identifier: Apache-2.0
// What tests of kernels hold results against: references and tolerances that the program itself does not need.
#pragma once
#include <cmath>
#include <span>

#include "kernels/lns/lns.hpp"

namespace gradmeter::kernels {

/// ‖C − C_ref‖ ≤ tolerance · ‖C_ref‖ for fp32 operands and fp32 accumulation over k summands. Rounding errors of a sum
/// of k terms accumulate like a random walk: u·√k for the sum's own size, u = 2^-24. The factor allows for a plain
/// sequential order, which stays under half of this; one missing summand is far above it.
inline double gemm_tolerance(const GemmShape& problem) { return 4 * 0x1p-24 * std::sqrt(double(problem.k)); }

/// The largest distance of an interpolated entry from lns_g, in codes; an exact one has 0.5.
inline double lns_interpolation_error(bool opposite) { return opposite ? 1.46 : 0.66; }

/// A compensated sum of the system: w + c is the value.
struct LnsKahan {
  Lns16 w, c;
  void add(const Lns& lns, Lns16 change) {
    lns_kahan_add(
        w, c, change, [&t = lns.tables()](std::uint32_t d, bool opposite) { return t.g(d, opposite); }, nullptr);
  }
};

/// Three loops over the scalar type: what products with logarithmic sums equal bit for bit.
inline void lns_gemm_reference(const GemmShape& p, const Lns& lns, std::span<const Lns16> a, std::span<const Lns16> b,
                               std::span<Lns16> c) {
  const bool ta = p.transpose_a == Transpose::yes, tb = p.transpose_b == Transpose::yes;
  for (std::size_t i = 0; i < p.m; ++i)
    for (std::size_t j = 0; j < p.n; ++j) {
      Lns16 sum;
      for (std::size_t k = 0; k < p.k; ++k)
        sum = lns.add(sum, lns.multiply(a[ta ? k * p.m + i : i * p.k + k], b[tb ? j * p.k + k : k * p.n + j]));
      c[i * p.n + j] = sum;
    }
}

}  // namespace gradmeter::kernels
