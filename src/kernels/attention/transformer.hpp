// SPDX-License-Identifier: Apache-2.0
// The loops of a transformer's layers, apart from its products, with float64 references (suffix _reference). The
// backward functions of layer norm and softmax have none; tests compare their gradients with central differences
// (tests/model/transformer_test.cpp).
#pragma once
#include <cstddef>
#include <span>

namespace gradmeter::kernels {

/// y = x·σ(2·√(2/π)·(x + 0.044715·x³)), the tanh form of x·Φ(x). Cost: 8 bytes an element; one exponential.
/// The error is at most 2^-20·(1 + |x|); bits depend on whether the processor has fused multiply-adds (lanes-inl.hpp).
/// Source: Hendrycks & Gimpel, "Gaussian error linear units", 2016, section 2; GPT-2 has this form.
void gelu(std::span<const float> x, std::span<float> y);
/// to = delta·gelu'(x). Cost: 12 bytes an element.
void gelu_backward(std::span<const float> x, std::span<const float> delta, std::span<float> to);
void gelu_reference(std::span<const float> x, std::span<float> y);
void gelu_backward_reference(std::span<const float> x, std::span<const float> delta, std::span<float> to);

/// Each row of x [rows × width], where gain and bias have `width` elements: y = (x − mean)/√(variance + 1e-5)·gain +
/// bias. Mean and variance are float64 sums in order, so bits are the same for any number of threads.
/// Cost: 12 bytes an element forward, 16 for the gradient by x, 12 for those by gain and bias.
/// Source: Ba, Kiros, Hinton, "Layer normalization", 2016.
void layer_norm(std::span<const float> x, std::span<const float> gain, std::span<const float> bias, std::span<float> y);
/// Gradients by gain and bias, which are overwritten. Rows are added in the order of pointwise/row_sums.hpp.
void layer_norm_backward_parameters(std::span<const float> x, std::span<const float> delta, std::span<float> gain,
                                    std::span<float> bias);
void layer_norm_backward(std::span<const float> x, std::span<const float> gain, std::span<const float> delta,
                         std::span<float> to);
void layer_norm_reference(std::span<const float> x, std::span<const float> gain, std::span<const float> bias,
                          std::span<float> y);

/// Scores [matrices × steps × steps], in place: in each row, the elements up to the diagonal become the softmax of
/// `scale` times themselves, and those after it zero, since a token attends to itself and those before it. Cost: 8
/// bytes and one exponential an element. Source: Vaswani et al. 2017, section 3.2.3.
void causal_softmax(std::span<float> scores, std::size_t steps, float scale);
/// `gradient` holds the gradient by the probabilities, and is overwritten with the gradient by the scores. Cost: 12
/// bytes an element.
void causal_softmax_backward(std::span<const float> probabilities, std::span<float> gradient, std::size_t steps,
                             float scale);
void causal_softmax_reference(std::span<float> scores, std::size_t steps, float scale);

}  // namespace gradmeter::kernels
