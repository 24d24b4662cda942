// Much random data quickly: a table of draws, entered at random, so that each element is its own choice and costs a few
// cycles.
#pragma once
#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

namespace gradmeter::kernels {

/// Places in a table of draws as long as `n` elements need, at most 2^14: a power of two, at least 2.
/// Source: Marsaglia, "Xorshift RNGs", J. Stat. Software 8(14), 2003 (xorshift64).
class TablePlaces {
 public:
  static std::size_t size_for(std::size_t n) { return std::clamp<std::size_t>(std::bit_ceil(n), 2, 1 << 14); }
  TablePlaces(std::uint64_t bits, std::size_t size) : state_(bits | 1), unused_bits_(std::countl_zero(size - 1)) {}
  std::size_t next() {
    state_ ^= state_ << 13, state_ ^= state_ >> 7, state_ ^= state_ << 17;
    return state_ >> unused_bits_;
  }

 private:
  std::uint64_t state_;
  int unused_bits_;
};

/// Mean 0, variance 1, |x| <= 6, times `scale`; the same for the same seed.
void fill_gaussian(std::span<float> values, std::uint64_t seed, double scale = 1);

}  // namespace gradmeter::kernels
