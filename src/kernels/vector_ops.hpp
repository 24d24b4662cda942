// One arithmetic operation on whole vectors, one pass over memory each: how a library of such operations computes an
// update that is not fused. Every operation rounds once (sigmoid and tanh: see pointwise.hpp's lstm_cell).
#pragma once
#include <cstdint>
#include <span>
#include <string>

namespace gradmeter::kernels {

enum class Binary : std::uint8_t { add, subtract, multiply, divide };
enum class Unary : std::uint8_t { add, multiply, square_root, sigmoid, tanh };  // add and multiply: `number`

/// out = a ∘ b. Cost: 12 bytes an element. All of one length (std::invalid_argument); out may be a or b.
void vector_op(Binary, std::span<const float> a, std::span<const float> b, std::span<float> out);
/// out = ∘ a. Cost: 8 bytes an element.
void vector_op(Unary, std::span<const float> a, float number, std::span<float> out);

/// The instruction set that our own loops use here, as Highway names it: "AVX3".
std::string vector_target();

}  // namespace gradmeter::kernels
