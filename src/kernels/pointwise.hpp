// The small loops of a training step, each with its float64 reference (suffix _reference, scalar and plain).
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

namespace gradmeter::kernels {

/// gradient[i] = activation[i] > 0 ? gradient[i] : 0. Activation is relu's output. Cost: 12 bytes an element.
void relu_backward(std::span<const float> activation, std::span<float> gradient);
void relu_backward_reference(std::span<const float> activation, std::span<float> gradient);

/// out[j] = Σ_i matrix[i × columns + j]: a bias's gradient. matrix [rows × columns]. Summed in row order.
void column_sums(std::span<const float> matrix, std::size_t columns, std::span<float> out);
void column_sums_reference(std::span<const float> matrix, std::size_t columns, std::span<float> out);

struct CrossEntropy {
  double loss_sum;      ///< Σ −log softmax(logits)[label], float64
  std::size_t correct;  ///< rows whose largest logit (first of equals) is the label's
};
/// logits [rows × classes]; when `gradient` is not empty: gradient = (softmax − one-hot) · scale, scale usually 1/rows.
CrossEntropy softmax_cross_entropy(std::span<const float> logits, std::span<const std::int32_t> labels,
                                   std::size_t classes, float scale, std::span<float> gradient);
CrossEntropy softmax_cross_entropy_reference(std::span<const float> logits, std::span<const std::int32_t> labels,
                                             std::size_t classes, float scale, std::span<float> gradient);

/// w −= step·g. Cost: 12 bytes an element.
void sgd(std::span<float> w, std::span<const float> g, float step);
void sgd_reference(std::span<float> w, std::span<const float> g, float step);
/// v = mu·v + g; w −= step·(nesterov ? g + mu·v : v). Cost: 20 bytes an element.
struct MomentumParameters {
  float step, mu;
  bool nesterov;
};
void momentum(std::span<float> w, std::span<float> v, std::span<const float> g, MomentumParameters);
void momentum_reference(std::span<float> w, std::span<float> v, std::span<const float> g, MomentumParameters);

/// The same value to every element of a buffer. out = in·factor, in place allowed.
void scale(std::span<float> values, float factor);

}  // namespace gradmeter::kernels
