// Much random data quickly: each element is taken from a table of draws at a random place, in a few cycles.
#pragma once
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

namespace gradmeter::kernels {

constexpr std::size_t draw_table_size = std::size_t{1} << 14;

/// Random places in a table of `draw_table_size` draws.
/// Source: Marsaglia, "Xorshift RNGs", J. Stat. Software 8(14), 2003 (xorshift64).
class TablePlaces {
 public:
  explicit TablePlaces(std::uint64_t bits) : state_(bits | 1) {}
  std::size_t next() {
    state_ ^= state_ << 13, state_ ^= state_ >> 7, state_ ^= state_ << 17;
    return state_ >> std::countl_zero(draw_table_size - 1);
  }

 private:
  std::uint64_t state_;
};

/// Draws of mean 0, variance 1, |x| <= 6; made once a process: cold kernels of small shapes have thousands of sets.
std::span<const double> gaussian_draws();

/// Mean 0, variance 1, |x| <= 6, times `scale`; the same for the same seed.
void fill_gaussian(std::span<float> values, std::uint64_t seed, double scale = 1);

}  // namespace gradmeter::kernels
