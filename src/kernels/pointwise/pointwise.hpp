// SPDX-License-Identifier: Apache-2.0
// The small loops of a training step. Those with suffix _reference compute the same in float64, in plain scalar code.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace gradmeter::kernels {

/// gradient[i] = activation[i] > 0 ? gradient[i] : 0, where `activation` is the output of the relu. Cost: 12 bytes an
/// element.
void relu_backward(std::span<const float> activation, std::span<float> gradient);
void relu_backward_reference(std::span<const float> activation, std::span<float> gradient);

/// out[j] = Σ_i matrix[i][j], which is the gradient of a bias; matrix [rows × columns]. Rows are added up in the order
/// of row_sums.hpp.
void column_sums(std::span<const float> matrix, std::size_t columns, std::span<float> out);
void column_sums_reference(std::span<const float> matrix, std::size_t columns, std::span<float> out);

struct CrossEntropy {
  double loss_sum;      ///< Σ −log softmax(logits)[label], float64
  std::size_t correct;  ///< number of rows whose largest logit (the first of equal ones) is the label's
};
/// Softmax cross-entropy of logits [rows × classes] with labels [rows]. If `gradient` [rows × classes] is not empty, it
/// becomes (softmax − one-hot)·scale, where `scale` is usually 1/rows.
CrossEntropy softmax_cross_entropy(std::span<const float> logits, std::span<const std::int32_t> labels,
                                   std::size_t classes, float scale, std::span<float> gradient);
CrossEntropy softmax_cross_entropy_reference(std::span<const float> logits, std::span<const std::int32_t> labels,
                                             std::size_t classes, float scale, std::span<float> gradient);

/// The bits of a number in bf16, which is used only for storage: arithmetic is fp32, and stores round to nearest even.
enum class Bf16 : std::uint16_t {};
/// The bits of a number in IEEE 754's 16-bit format, which is also used only for storage.
enum class Fp16 : std::uint16_t {};

/// Convert between bf16 and fp32. Cost: 6 bytes an element.
void to_floats(std::span<const Bf16>, std::span<float>);
void to_bf16(std::span<const float>, std::span<Bf16>);
/// Rounds to numbers of bf16, stored as fp32. Cost: 8 bytes an element.
void round_to_bf16(std::span<const float>, std::span<float>);

/// w −= step·g. Cost: 12 bytes an element. (Here and below, bf16 costs half as many bytes.)
void sgd(std::span<float> w, std::span<const float> g, float step);
void sgd(std::span<Bf16> w, std::span<const Bf16> g, float step);
void sgd_reference(std::span<float> w, std::span<const float> g, float step);
/// v = mu·v + g; w −= step·(nesterov ? g + mu·v : v). Cost: 20 bytes an element.
struct MomentumParameters {
  float step, mu;
  bool nesterov;
};
void momentum(std::span<float> w, std::span<float> v, std::span<const float> g, MomentumParameters);
void momentum(std::span<Bf16> w, std::span<Bf16> v, std::span<const Bf16> g, MomentumParameters);
void momentum_reference(std::span<float> w, std::span<float> v, std::span<const float> g, MomentumParameters);

/// m = beta1·m + (1 − beta1)·g; v = beta2·v + (1 − beta2)·g²; w −= rate()·m / (√v + epsilon). This is the form at the
/// end of the paper's section 2; its epsilon is √(1 − beta2^t) times that of algorithm 1, where t is the update's
/// number. Cost: 28 bytes an element. Source: Kingma and Ba, "Adam: a method for stochastic optimization", ICLR 2015.
struct AdamParameters {
  float step = 1e-3F, beta1 = 0.9F, beta2 = 0.999F, epsilon = 1e-8F;
  std::uint64_t update = 1;  ///< the update's number, from 1
  float rate() const;        ///< step·√(1 − beta2^update) / (1 − beta1^update)
};
void adam(std::span<float> w, std::span<float> m, std::span<float> v, std::span<const float> g, AdamParameters);
void adam(std::span<Bf16> w, std::span<Bf16> m, std::span<Bf16> v, std::span<const Bf16> g, AdamParameters);
void adam_reference(std::span<float> w, std::span<float> m, std::span<float> v, std::span<const float> g,
                    AdamParameters);

/// The pointwise part of a forward step of an LSTM: c = σ(forget)·c + σ(input)·tanh(candidate); h = σ(output)·tanh(c).
/// The gates are those before the nonlinearities σ (sigmoid) and tanh, with biases added. The relative error of σ and
/// tanh is at most 8·2^-24, so the error of c and h is at most 2^-20·(1 + |c|). Bits depend on whether the processor
/// has fused multiply-adds. Cost: 28 bytes an element. Source: Hochreiter and Schmidhuber 1997; forget gate: Gers et
/// al. 2000.
template <class T>
struct LstmGates {
  std::span<const T> input, forget, candidate, output;
};
void lstm_cell(LstmGates<float>, std::span<float> c, std::span<float> h);
void lstm_cell(LstmGates<Bf16>, std::span<Bf16> c, std::span<Bf16> h);
void lstm_cell_reference(LstmGates<float>, std::span<float> c, std::span<float> h);

/// Multiplies every element by `factor`, in place.
void scale(std::span<float> values, float factor);

// Single arithmetic operations on whole vectors, each of which is a pass over memory, as in a library of such
// operations. Kernel cases time updates that are made of them. Every operation rounds once (sigmoid and tanh: see
// lstm_cell).

enum class Binary : std::uint8_t { add, subtract, multiply, divide };
enum class Unary : std::uint8_t { add, multiply, square_root, sigmoid, tanh };  // add and multiply use `number`

/// out = a ∘ b, where ∘ is the operation; out may be a or b. Cost: 12 bytes an element. Errors: std::invalid_argument
/// unless all lengths are equal.
void vector_op(Binary, std::span<const float> a, std::span<const float> b, std::span<float> out);
/// out = f(a), or f(a, number) if the operation f uses a number; out may be a. Cost: 8 bytes an element.
void vector_op(Unary, std::span<const float> a, float number, std::span<float> out);

/// The instruction set that our vector loops use on this processor, as Highway names it: "AVX3".
std::string vector_target();

}  // namespace gradmeter::kernels
