// SPDX-License-Identifier: Apache-2.0
// The loops of a transformer's layers, apart from its products, with float64 references (suffix _reference). The
// backward functions of layer norm and softmax have none; tests compare their gradients with central differences
// (tests/model/transformer_test.cpp). In backward functions, `delta` is the gradient of the loss with respect to the
// layer's output y, and `to` receives the gradient with respect to the layer's input x.
#pragma once
#include <cstddef>
#include <span>

namespace gradmeter::kernels {

/// y = x·σ(2·√(2/π)·(x + 0.044715·x³)), the tanh form of x·Φ(x), with σ the sigmoid and Φ the normal distribution's
/// cumulative function. Cost: 8 bytes and one exponential an element.
/// The error is at most 2^-20·(1 + |x|); bits depend on whether the processor has fused multiply-adds (lanes-inl.hpp).
/// Source: Hendrycks & Gimpel, "Gaussian error linear units", 2016, section 2; GPT-2 has this form.
void gelu(std::span<const float> x, std::span<float> y);
/// to = delta·gelu'(x). Cost: 12 bytes an element.
void gelu_backward(std::span<const float> x, std::span<const float> delta, std::span<float> to);
void gelu_reference(std::span<const float> x, std::span<float> y);
void gelu_backward_reference(std::span<const float> x, std::span<const float> delta, std::span<float> to);

/// Normalises each row of x [rows × width]: y = (x − mean)/√(variance + 1e-5)·gain + bias, with gain and bias [width].
/// A row's mean and variance are summed in float64 in order, so bits are the same for any number of threads.
/// Cost: 12 bytes an element forward, 16 for the gradient of x, 12 for those of gain and bias.
/// Source: Ba, Kiros, Hinton, "Layer normalization", 2016.
void layer_norm(std::span<const float> x, std::span<const float> gain, std::span<const float> bias, std::span<float> y);
/// Writes the gradients of gain and bias to `gain` and `bias`. Rows are added up in the order of
/// pointwise/row_sums.hpp.
void layer_norm_backward_parameters(std::span<const float> x, std::span<const float> delta, std::span<float> gain,
                                    std::span<float> bias);
void layer_norm_backward(std::span<const float> x, std::span<const float> gain, std::span<const float> delta,
                         std::span<float> to);
void layer_norm_reference(std::span<const float> x, std::span<const float> gain, std::span<const float> bias,
                          std::span<float> y);

/// Turns scores [matrices × steps × steps] into probabilities, in place. In each row, the elements up to the diagonal
/// become the softmax of the scores times `scale`; those after the diagonal become zero, since a token attends only to
/// itself and earlier tokens. Cost: 8 bytes and one exponential an element. Source: Vaswani et al. 2017, section 3.2.3.
void causal_softmax(std::span<float> scores, std::size_t steps, float scale);
/// Turns the gradient of the probabilities into the gradient of the scores, in place. Cost: 12 bytes an element.
void causal_softmax_backward(std::span<const float> probabilities, std::span<float> gradient, std::size_t steps,
                             float scale);
void causal_softmax_reference(std::span<float> scores, std::size_t steps, float scale);

}  // namespace gradmeter::kernels
