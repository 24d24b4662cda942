// How kernels use numbers of 8 bits.
#pragma once
#include <span>
#include <vector>

#include "kernels/problems/problem.hpp"

namespace gradmeter::kernels {

/// Real numbers as whole ones: an activation is (u8 - zero_point) · quantum, a weight s8 · the quantum of its output.
struct Quantization {
  float quantum = 1;
  int zero_point = 0;
  std::vector<float> weight_quanta = {};  ///< of a product's columns, of filters, of an rnn's gates × hidden
};

/// 255 steps from the least to the greatest number; zero is one of them exactly. A number of the range is at most half
/// a quantum off. Errors: std::invalid_argument for a range without zero, or that is not finite. Source: Jacob et al.,
/// CVPR 2018, section 2.1.
Quantization quantize_range(float least, float greatest);
/// Raises `largest` to the largest size of each output's weights [… × outputs × inner].
void raise_to_largest(std::span<const float> weights, std::size_t inner, std::span<float> largest);
/// Symmetric: the largest size becomes largest_int8_weight(); 1 for an output without weights. In place.
void to_weight_quanta(std::span<float> largest);

/// u8 means (u8 − 128)·quantum in recurrent layers: a power of two, so that every value is exact as a float.
inline constexpr float rnn_quantum = 0x1p-7F, rnn_zero_point = 128;

/// 127 where products of 8-bit integers are summed exactly (VNNI); 63 where pairs of products of 255·127 would
/// saturate at 16 bits.
double largest_int8_weight();
/// s8 per unit of a recurrent layer's weight of variance 1/hidden, a power of two: six standard deviations still fit.
float rnn_weights_scale(const RnnShape&);

}  // namespace gradmeter::kernels
