// SPDX-License-Identifier: Apache-2.0
// The formats in which numbers of an operand are stored, and the random numbers that test it.
#pragma once
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "core/element.hpp"
#include "kernels/problems/problem.hpp"

namespace gradmeter::kernels {

struct NumberFormat {
  std::string_view name;
  std::size_t bytes;
  double (*load)(const std::byte*);
  void (*store)(std::byte*, double);  ///< rounds to the format
  /// Random data is uniform over `levels` whole numbers, from `lowest` on. By convention `levels` 0 stands for Gaussian
  /// data, of mean 0 and variance 1.
  double lowest = 0;
  std::size_t levels = 0;

  bool operator==(const NumberFormat& other) const { return name == other.name; }
};

/// Formats of fp32, bf16, fp16, int32 and int8. Errors: std::logic_error for an element that no kernel computes with.
const NumberFormat& number_format(core::Element);
/// A byte to fill an output with before an operation: an element that still consists of it was not written. int32:
/// 0x5a, since 0x5a5a5a5a is more than any sum of the small test numbers. Other formats: 0xff, which in floats is a NaN
/// that no arithmetic produces; in 8-bit formats it is a number like others.
std::byte unwritten_byte(const NumberFormat&);
/// The format of the logarithmic system with 6, 7 or 8 fraction bits. Errors: std::out_of_range.
const NumberFormat& lns_number_format(unsigned fraction_bits);
/// The format of 8-bit unsigned whole numbers, which quantized activations have.
const NumberFormat& format_u8();

/// Draws random numbers from a seed, times `scale`, rounded to the format; unsigned numbers are not scaled. `memory`
/// has a whole number of elements.
void fill_random(std::span<std::byte> memory, const NumberFormat&, std::uint64_t seed, double scale = 1);
/// As `fill_random`, but repeats after 2^16 elements: a fast draw for much memory whose numbers no check compares.
void fill_repeating(std::span<std::byte> memory, const NumberFormat&, std::uint64_t seed, double scale = 1);
/// The root mean square of the random numbers of a format.
double random_root_mean_square(const NumberFormat&);

/// Rounds each number such that its product with a scale is a number of e4m3 or e5m2. All numbers share this scale;
/// with it, the largest finite magnitude becomes the format's largest (current scaling). Infinities and NaN stay, so
/// that they are seen.
void round_to_fp8(std::span<float>, core::Element);

// Quantization of numbers to 8 bits.

/// How whole numbers represent real ones: an activation is (u8 - zero_point) · quantum, a weight s8 · the quantum of
/// its output.
struct Quantization {
  float quantum = 1;
  int zero_point = 0;
  /// One quantum for each output: each column of a product, each filter, or each gate of each hidden unit of an rnn.
  std::vector<float> weight_quanta = {};
};

/// Divides the range from the least to the greatest number into 255 steps, such that zero is exact. The error of a
/// number in the range is at most half a quantum. Errors: std::invalid_argument for a range without zero, or that is
/// not finite.
/// Source: Jacob et al., CVPR 2018, section 2.1.
Quantization quantize_range(float least, float greatest);
/// Sets largest[i] to the largest magnitude among the weights of output i, if that is above its present value. weights
/// [… × outputs × weights_per_output], largest [outputs].
void raise_to_largest(std::span<const float> weights, std::size_t weights_per_output, std::span<float> largest);
/// Turns the largest magnitude of each output's weights into the quantum of these weights, in place, such that the
/// magnitude is largest_int8_weight() quanta. An output whose weights are all zero gets the quantum 1.
void to_weight_quanta(std::span<float> largest);

/// In recurrent layers a u8 stands for (u8 − 128)·quantum. The quantum is a power of two, so that every value is
/// exactly a float.
inline constexpr float rnn_quantum = 0x1p-7F, rnn_zero_point = 128;

/// The largest magnitude that an int8 weight may have: 127 where the processor sums products of 8-bit integers exactly
/// (VNNI); 63 where it sums two products in 16 bits, since 2·255·127 would saturate.
double largest_int8_weight();
/// The `scale` to use with `fill_random` for operands: 1, or for s8 the scale with which no weight exceeds
/// `largest_int8_weight()`.
double scale_for_random(const NumberFormat&);
/// The whole number that stands for 1.0 where a recurrent layer has s8 weights. It is the largest power of two with
/// which six standard deviations of the weights (variance 1/hidden) do not exceed `largest_int8_weight()`.
float rnn_weights_scale(const RnnShape&);

// A fast source of much random data: each element is taken from a random index of a table of draws, in a few cycles.

constexpr std::size_t draw_table_size = std::size_t{1} << 14;

/// Random indices into a table of `draw_table_size` draws.
/// Source: Marsaglia, "Xorshift RNGs", J. Stat. Software 8(14), 2003 (xorshift64).
class RandomTableIndices {
 public:
  explicit RandomTableIndices(std::uint64_t bits) : state_(bits | 1) {}
  std::size_t next() {
    state_ ^= state_ << 13, state_ ^= state_ >> 7, state_ ^= state_ << 17;
    return state_ >> std::countl_zero(draw_table_size - 1);
  }

 private:
  std::uint64_t state_;
};

/// `draw_table_size` draws of mean 0, variance 1, |x| <= 6. They are made once in a process and used again for each
/// operand, since a small kernel that is timed with cold caches needs thousands of operand sets.
std::span<const double> gaussian_draws();

/// Draws numbers of mean 0, variance 1, |x| <= 6, times `scale`. Equal seeds give equal numbers.
void fill_gaussian(std::span<float> values, std::uint64_t seed, double scale = 1);

}  // namespace gradmeter::kernels
