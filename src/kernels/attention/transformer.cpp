// SPDX-License-Identifier: Apache-2.0
// The loops of transformer layers. Loops with exponentials are vectorised for every instruction set. The sums over a
// row's elements are not, since they are made in float64 in order.
#include "kernels/attention/transformer.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/attention/transformer.cpp"
#include "hwy/foreach_target.h"
// After foreach_target.
#include "hwy/highway.h"
#include "kernels/lanes-inl.hpp"

HWY_BEFORE_NAMESPACE();

namespace gradmeter::kernels::HWY_NAMESPACE {

constexpr float gelu_cubic = 0.044715F, gelu_slope = 1.5957691216F;  // gelu_slope is 2·√(2/π)

template <class D>
HWY_INLINE hn::Vec<D> gelu_factor(D d, hn::Vec<D> x) {
  const auto cubic = hn::Mul(hn::Set(d, gelu_cubic), hn::Mul(x, hn::Mul(x, x)));
  return sigmoid(d, hn::Mul(hn::Set(d, gelu_slope), hn::Add(x, cubic)));
}

void Gelu(const float* x, float* y, std::size_t n) {
  each(n, [=](auto d, std::size_t i) HWY_ATTR {
    const auto v = load(d, x + i);
    store(hn::Mul(v, gelu_factor(d, v)), d, y + i);
  });
}

// gelu'(x) = σ + x·σ·(1 − σ)·u', where u is the argument of σ.
void GeluBackward(const float* x, const float* delta, float* to, std::size_t n) {
  each(n, [=](auto d, std::size_t i) HWY_ATTR {
    const auto v = load(d, x + i), one = hn::Set(d, 1.0F), factor = gelu_factor(d, v);
    const auto u_derivative =
        hn::Mul(hn::Set(d, gelu_slope), hn::Add(one, hn::Mul(hn::Set(d, 3 * gelu_cubic), hn::Mul(v, v))));
    const auto factor_change = hn::Mul(hn::Mul(v, factor), hn::Mul(hn::Sub(one, factor), u_derivative));
    store(hn::Mul(load(d, delta + i), hn::Add(factor, factor_change)), d, to + i);
  });
}

void Exponentials(float* x, std::size_t n) {
  each(n, [=](auto d, std::size_t i) HWY_ATTR {
    const auto v = load(d, x + i);
    store(hn::IfThenElse(hn::IsNaN(v), v, hn::Exp(d, v)), d, x + i);  // Exp makes 0 of a NaN
  });
}

}  // namespace gradmeter::kernels::HWY_NAMESPACE

HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "kernels/host/memory.hpp"
#include "kernels/host/threads.hpp"
#include "kernels/pointwise/row_sums.hpp"

namespace gradmeter::kernels {

HWY_EXPORT(Gelu);
HWY_EXPORT(GeluBackward);
HWY_EXPORT(Exponentials);

namespace {

// The fewest elements for each thread: exponentials repay the start of a team of threads sooner than loads do.
constexpr std::size_t transformer_grain = 1 << 14;

struct RowMoments {
  float mean, inverse_deviation;
};
RowMoments moments_of(const float* x, std::size_t width) {
  const auto n = static_cast<double>(width);
  double sum = 0, squares = 0;
  for (std::size_t j = 0; j < width; ++j) sum += double{x[j]};
  const double mean = sum / n;
  for (std::size_t j = 0; j < width; ++j) squares += (double{x[j]} - mean) * (double{x[j]} - mean);
  return {static_cast<float>(mean), static_cast<float>(1 / std::sqrt(squares / n + 1e-5))};
}

/// Calls row(at) for each row, in parallel, where `at` is the index of the row's first element.
template <class Row>
void each_row(std::size_t elements, std::size_t width, const Row& row) {
  if (elements == 0) return;
  split(elements / width, transformer_grain / width + 1, [&](std::size_t first, std::size_t count) {
    for (std::size_t r = first; r < first + count; ++r) row(r * width);
  });
}

/// Replaces each score s of a matrix by exp(scale·(s − largest)), where `largest` is the largest visible score of its
/// row. Scores above the diagonal are not visible, and become zero.
void exponentials_of(float* scores, std::size_t steps, float scale) {
  for (std::size_t i = 0; i < steps; ++i) {
    float* const row = scores + i * steps;
    const float largest = *std::max_element(row, row + i + 1);
    for (std::size_t j = 0; j <= i; ++j) row[j] = scale * (row[j] - largest);
    std::fill(row + i + 1, row + steps, -std::numeric_limits<float>::infinity());
  }
  HWY_DYNAMIC_DISPATCH(Exponentials)(scores, steps * steps);
}

}  // namespace

void gelu(std::span<const float> x, std::span<float> y) {
  require_elements("gelu: y", y.size(), x.size());
  split(x.size(), transformer_grain, [&](std::size_t first, std::size_t n) {
    HWY_DYNAMIC_DISPATCH(Gelu)(x.data() + first, y.data() + first, n);
  });
}

void gelu_backward(std::span<const float> x, std::span<const float> delta, std::span<float> to) {
  require_elements("gelu_backward: delta", delta.size(), x.size());
  require_elements("gelu_backward: to", to.size(), x.size());
  split(x.size(), transformer_grain, [&](std::size_t first, std::size_t n) {
    HWY_DYNAMIC_DISPATCH(GeluBackward)(x.data() + first, delta.data() + first, to.data() + first, n);
  });
}

void layer_norm(std::span<const float> x, std::span<const float> gain, std::span<const float> bias,
                std::span<float> y) {
  require_rows("layer_norm: x", x.size(), gain.size());
  require_elements("layer_norm: y", y.size(), x.size());
  require_elements("layer_norm: bias", bias.size(), gain.size());
  each_row(x.size(), gain.size(), [&](std::size_t at) {
    const auto [mean, inverse] = moments_of(&x[at], gain.size());
    for (std::size_t j = 0; j < gain.size(); ++j) y[at + j] = (x[at + j] - mean) * inverse * gain[j] + bias[j];
  });
}

void layer_norm_backward_parameters(std::span<const float> x, std::span<const float> delta, std::span<float> gain,
                                    std::span<float> bias) {
  require_rows("layer_norm_backward_parameters: x", x.size(), gain.size());
  require_elements("layer_norm_backward_parameters: delta", delta.size(), x.size());
  require_elements("layer_norm_backward_parameters: bias", bias.size(), gain.size());
  RowSums gain_sums(gain.size()), bias_sums(gain.size());
  std::vector<float> gain_terms(gain.size());
  for (std::size_t at = 0; at < x.size(); at += gain.size()) {
    const auto [mean, inverse] = moments_of(&x[at], gain.size());
    for (std::size_t j = 0; j < gain.size(); ++j) gain_terms[j] = delta[at + j] * ((x[at + j] - mean) * inverse);
    gain_sums.add(gain_terms.data());
    bias_sums.add(&delta[at]);
  }
  gain_sums.finish(gain);
  bias_sums.finish(bias);
}

// The gradient of x is (g − mean(g) − x̂·mean(g·x̂))/deviation, where x̂ is the normalised row and g = delta·gain.
void layer_norm_backward(std::span<const float> x, std::span<const float> gain, std::span<const float> delta,
                         std::span<float> to) {
  require_rows("layer_norm_backward: x", x.size(), gain.size());
  require_elements("layer_norm_backward: delta", delta.size(), x.size());
  require_elements("layer_norm_backward: to", to.size(), x.size());
  const std::size_t width = gain.size();
  each_row(x.size(), width, [&](std::size_t at) {
    const auto [mean, inverse] = moments_of(&x[at], width);
    double g_sum = 0, g_normal_sum = 0;
    for (std::size_t j = 0; j < width; ++j) {
      const float g = delta[at + j] * gain[j];
      g_sum += double{g};
      g_normal_sum += double{g} * double{(x[at + j] - mean) * inverse};
    }
    const auto g_mean = static_cast<float>(g_sum / static_cast<double>(width)),
               g_normal_mean = static_cast<float>(g_normal_sum / static_cast<double>(width));
    for (std::size_t j = 0; j < width; ++j)
      to[at + j] = (delta[at + j] * gain[j] - g_mean - (x[at + j] - mean) * inverse * g_normal_mean) * inverse;
  });
}

void causal_softmax(std::span<float> scores, std::size_t steps, float scale) {
  require_rows("causal_softmax: scores", scores.size(), steps * steps);
  each_row(scores.size(), steps * steps, [&](std::size_t at) {
    float* const matrix = &scores[at];
    exponentials_of(matrix, steps, scale);
    for (std::size_t i = 0; i < steps; ++i) {
      const std::span<float> row(matrix + i * steps, i + 1);
      double sum = 0;
      for (const float e : row) sum += double{e};
      const auto inverse = static_cast<float>(1 / sum);
      for (float& e : row) e *= inverse;
    }
  });
}

void causal_softmax_backward(std::span<const float> probabilities, std::span<float> gradient, std::size_t steps,
                             float scale) {
  require_rows("causal_softmax_backward: probabilities", probabilities.size(), steps * steps);
  require_elements("causal_softmax_backward: gradient", gradient.size(), probabilities.size());
  each_row(gradient.size(), steps, [&](std::size_t at) {
    const std::size_t visible = at / steps % steps + 1;
    double sum = 0;
    for (std::size_t j = 0; j < visible; ++j) sum += double{probabilities[at + j]} * double{gradient[at + j]};
    const auto mean = static_cast<float>(sum);
    for (std::size_t j = 0; j < steps; ++j)  // probabilities after the visible ones are zero
      gradient[at + j] = scale * probabilities[at + j] * (gradient[at + j] - mean);
  });
}

}  // namespace gradmeter::kernels

#endif  // HWY_ONCE
