// SPDX-License-Identifier: Apache-2.0
// Softmax cross-entropy. Rows are short (ten classes) and few, so a plain loop is enough: it takes less than 0.2 % of a
// training step. The largest logit is subtracted first, so nothing overflows; sums are float64, in the order of
// classes.
#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <vector>

#include "core/format.hpp"
#include "kernels/host/memory.hpp"
#include "kernels/pointwise/pointwise.hpp"

namespace gradmeter::kernels {
namespace {

void require_problem(std::span<const float> logits, std::span<const std::int32_t> labels, std::size_t classes,
                     std::span<const float> gradient) {
  require_elements("softmax_cross_entropy: logits", logits.size(), labels.size() * classes);
  if (!gradient.empty()) require_elements("softmax_cross_entropy: gradient", gradient.size(), logits.size());
  for (const std::int32_t label : labels)
    if (label < 0 || static_cast<std::size_t>(label) >= classes)
      throw std::invalid_argument(fmt::format("softmax_cross_entropy: label {} is outside [0, {})", label, classes));
}

struct RowSum {
  std::size_t top;  // the first class with the largest logit
  double sum;       // sum of exp(logit - largest)
};

// Writes exp(logit - largest) of each class to `exps`.
RowSum exponentials(const float* logits, std::size_t classes, float* exps) {
  const float* top = std::max_element(logits, logits + classes);
  RowSum row{static_cast<std::size_t>(top - logits), 0};
  for (std::size_t j = 0; j < classes; ++j) {
    exps[j] = std::exp(logits[j] - *top);
    row.sum += double{exps[j]};
  }
  return row;
}

}  // namespace

CrossEntropy softmax_cross_entropy(std::span<const float> logits, std::span<const std::int32_t> labels,
                                   std::size_t classes, float scale, std::span<float> gradient) {
  require_problem(logits, labels, classes, gradient);
  std::vector<float> spare(gradient.empty() ? classes : 0);
  CrossEntropy total{0, 0};
  for (std::size_t i = 0; i < labels.size(); ++i) {
    const float* in = logits.data() + i * classes;
    float* out = gradient.empty() ? spare.data() : gradient.data() + i * classes;
    const auto label = static_cast<std::size_t>(labels[i]);
    const RowSum row = exponentials(in, classes, out);
    total.loss_sum += std::log(row.sum) - (double{in[label]} - double{in[row.top]});
    total.correct += row.top == label ? 1 : 0;
    if (gradient.empty()) continue;
    // float64 keeps the digits of p - 1 where p is close to 1.
    for (std::size_t j = 0; j < classes; ++j)
      out[j] = static_cast<float>((double{out[j]} / row.sum - (j == label ? 1.0 : 0.0)) * double{scale});
  }
  return total;
}

CrossEntropy softmax_cross_entropy_reference(std::span<const float> logits, std::span<const std::int32_t> labels,
                                             std::size_t classes, float scale, std::span<float> gradient) {
  require_problem(logits, labels, classes, gradient);
  CrossEntropy total{0, 0};
  for (std::size_t i = 0; i < labels.size(); ++i) {
    const std::span<const float> in = logits.subspan(i * classes, classes);
    const auto label = static_cast<std::size_t>(labels[i]);
    const auto top = std::ranges::max_element(in);
    double sum = 0;
    for (const float x : in) sum += std::exp(double{x} - double{*top});
    total.loss_sum += std::log(sum) + double{*top} - double{in[label]};
    total.correct += static_cast<std::size_t>(top - in.begin()) == label ? 1 : 0;
    if (gradient.empty()) continue;
    for (std::size_t j = 0; j < classes; ++j) {
      const double probability = std::exp(double{in[j]} - double{*top}) / sum;
      gradient[i * classes + j] = static_cast<float>((probability - (j == label ? 1.0 : 0.0)) * double{scale});
    }
  }
  return total;
}

}  // namespace gradmeter::kernels
