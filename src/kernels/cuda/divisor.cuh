// SPDX-License-Identifier: Apache-2.0
// Divisions of indices by numbers that the host knows. A GPU has no instruction for division: a division of 64 bits
// takes some seventy instructions, one of 32 bits some twenty, and kernels divide several times for each element.
#pragma once
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "runtime/cuda/launch.hpp"

namespace gradmeter::kernels::cuda {

struct Quotient {
  std::size_t whole, rest;
};

/// Divides n < 2^31 by `value`, by a multiplication and a shift.
/// Source: Granlund and Montgomery, "Division by invariant integers using multiplication", PLDI 1994.
struct Divisor {
  static constexpr std::size_t dividend_limit = std::size_t{1} << 31;
  unsigned value = 1, factor = 1, shift = 0;
  Divisor() = default;
  explicit Divisor(std::size_t by) : value(by == 0 ? 1 : static_cast<unsigned>(by)) {  // by 0: no elements, never used
    while (std::uint64_t{1} << shift < value) ++shift;
    factor = static_cast<unsigned>(((std::uint64_t{1} << 32) * ((std::uint64_t{1} << shift) - value)) / value + 1);
  }
  __device__ unsigned operator()(unsigned n) const { return (__umulhi(n, factor) + n) >> shift; }
  __device__ Quotient divide(std::size_t n) const {
    const auto low = static_cast<unsigned>(n);
    const unsigned whole = (*this)(low);
    return {whole, low - whole * value};
  }
};

/// Divides any n by `value`, by a division of 64 bits.
struct LongDivisor {
  std::size_t value = 1;
  LongDivisor() = default;
  explicit LongDivisor(std::size_t by) : value(by) {}
  __device__ Quotient divide(std::size_t n) const {
    const std::size_t whole = n / value;
    return {whole, n - whole * value};
  }
};

/// Calls `launch` with the type of divisor that serves all indices below n, wrapped in a std::type_identity: Divisor if
/// n is at most 2^31, else LongDivisor.
template <class Launch>
void with_divisors_below(std::size_t n, Launch launch) {
  if (n <= Divisor::dividend_limit) return launch(std::type_identity<Divisor>{});
  launch(std::type_identity<LongDivisor>{});
}

}  // namespace gradmeter::kernels::cuda
