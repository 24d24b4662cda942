// How kernels use numbers of 8 bits.
#pragma once
#include "kernels/problems/problem.hpp"

namespace gradmeter::kernels {

/// u8 means (u8 − 128)·quantum in recurrent layers: a power of two, so that every value is exact as a float.
inline constexpr float rnn_quantum = 0x1p-7F, rnn_zero_point = 128;

/// 127 where products of 8-bit integers are summed exactly (VNNI); 63 where pairs of products of 255·127 would
/// saturate at 16 bits.
double largest_int8_weight();
/// s8 per unit of a recurrent layer's weight of variance 1/hidden, a power of two: six standard deviations still fit.
float rnn_weights_scale(const RnnShape&);

}  // namespace gradmeter::kernels
