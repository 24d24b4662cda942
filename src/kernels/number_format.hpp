// How the numbers of an operand lie in memory, and which random ones test it.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "core/element.hpp"

namespace gradmeter::kernels {

struct NumberFormat {
  std::string_view name;
  std::size_t bytes;
  double (*load)(const std::byte*);
  void (*store)(std::byte*, double);  ///< rounds
  /// Of random data: uniform over the whole numbers from `lowest`, so many; 0: Gaussian of mean 0 and variance 1.
  double lowest = 0;
  std::size_t levels = 0;

  bool operator==(const NumberFormat& other) const { return name == other.name; }
};

/// fp32, bf16, fp16, int32, int8. Errors: std::logic_error for an element that no kernel computes with.
const NumberFormat& number_format(core::Element);
/// Of the logarithmic system with 6, 7 or 8 fraction bits. Errors: std::out_of_range.
const NumberFormat& lns_number_format(unsigned fraction_bits);
/// Whole numbers of 8 bits without sign, as quantized activations are.
const NumberFormat& format_u8();

/// Random numbers from a seed of its own for each operand, times `scale` and rounded to the format; numbers without
/// sign are not scaled. `memory` has a whole number of elements.
void fill_random(std::span<std::byte> memory, const NumberFormat&, std::uint64_t seed, double scale = 1);
/// The same, repeated after 2^16 elements: quick to draw for much memory whose numbers no check compares.
void fill_repeating(std::span<std::byte> memory, const NumberFormat&, std::uint64_t seed, double scale = 1);
/// Root mean square of one of these.
double usual_size(const NumberFormat&);

/// To numbers of e4m3 or e5m2 times one scale: the largest becomes the format's largest (current scaling). Infinities
/// and NaN stay, so that they are seen.
void round_to_fp8(std::span<float>, core::Element);

}  // namespace gradmeter::kernels
