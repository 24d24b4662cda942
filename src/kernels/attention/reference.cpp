// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include "kernels/attention/transformer.hpp"

namespace gradmeter::kernels {
namespace {

const double root_of_two_over_pi = std::sqrt(2 / std::numbers::pi);

double gelu_tanh(double x) { return std::tanh(root_of_two_over_pi * (x + 0.044715 * x * x * x)); }

}  // namespace

void gelu_reference(std::span<const float> x, std::span<float> y) {
  for (std::size_t i = 0; i < x.size(); ++i) y[i] = static_cast<float>(0.5 * double{x[i]} * (1 + gelu_tanh(x[i])));
}

void gelu_backward_reference(std::span<const float> x, std::span<const float> delta, std::span<float> to) {
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double v = x[i], t = gelu_tanh(v);
    const double slope = 0.5 * (1 + t) + 0.5 * v * (1 - t * t) * root_of_two_over_pi * (1 + 3 * 0.044715 * v * v);
    to[i] = static_cast<float>(double{delta[i]} * slope);
  }
}

void layer_norm_reference(std::span<const float> x, std::span<const float> gain, std::span<const float> bias,
                          std::span<float> y) {
  const auto width = static_cast<double>(gain.size());
  for (std::size_t at = 0; at < x.size(); at += gain.size()) {
    double mean = 0, variance = 0;
    for (std::size_t j = 0; j < gain.size(); ++j) mean += double{x[at + j]} / width;
    for (std::size_t j = 0; j < gain.size(); ++j) variance += std::pow(double{x[at + j]} - mean, 2) / width;
    for (std::size_t j = 0; j < gain.size(); ++j)
      y[at + j] = static_cast<float>((double{x[at + j]} - mean) / std::sqrt(variance + 1e-5) * double{gain[j]} +
                                     double{bias[j]});
  }
}

void causal_softmax_reference(std::span<float> scores, std::size_t steps, float scale) {
  for (std::size_t at = 0; at < scores.size(); at += steps) {
    const std::size_t visible = at / steps % steps + 1;
    double largest = scores[at], sum = 0;
    for (std::size_t j = 0; j < visible; ++j) largest = std::max(largest, double{scores[at + j]});
    std::vector<double> exponentials(steps);
    for (std::size_t j = 0; j < visible; ++j)
      sum += exponentials[j] = std::exp(double{scale} * (double{scores[at + j]} - largest));
    for (std::size_t j = 0; j < steps; ++j) scores[at + j] = static_cast<float>(exponentials[j] / sum);
  }
}

}  // namespace gradmeter::kernels
