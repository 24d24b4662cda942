// Much random data quickly: a table of draws, entered at random, so that each element is its own choice and costs a few
// cycles.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

namespace gradmeter::kernels {

/// Places in a table of `size` draws. Source: Marsaglia, "Xorshift RNGs", J. Stat. Software 8(14), 2003 (xorshift64).
class TablePlaces {
 public:
  static constexpr std::size_t size = 1 << 14;
  explicit TablePlaces(std::uint64_t bits) : state_(bits | 1) {}
  std::size_t next() {
    state_ ^= state_ << 13, state_ ^= state_ >> 7, state_ ^= state_ << 17;
    return state_ >> 50;
  }

 private:
  std::uint64_t state_;
};

/// Mean 0, variance 1, |x| <= 6, times `scale`; the same for the same seed.
void fill_gaussian(std::span<float> values, std::uint64_t seed, double scale = 1);

}  // namespace gradmeter::kernels
