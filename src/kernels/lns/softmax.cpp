#include "kernels/lns/softmax.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include "kernels/problems/shape.hpp"

namespace gradmeter::kernels {
namespace {

/// Of a number that is not above zero: the power is at most 1.
Lns16 exponential(const Lns& lns, Lns16 x) {
  const double code = lns.decode(x) * std::numbers::log2e * double(1U << lns.fraction_bits());
  const auto below_one = std::lround(std::max(code, -double{Lns16::one}));
  return below_one <= -Lns16::one ? Lns16{} : Lns16::from(false, Lns16::one + static_cast<std::int32_t>(below_one));
}

/// Of one row: writes the probabilities.
void softmax(const Lns& lns, std::span<const Lns16> logits, Lns16 largest, std::span<Lns16> p) {
  Lns16 sum;
  for (std::size_t j = 0; j < p.size(); ++j) {
    p[j] = exponential(lns, lns.subtract(logits[j], largest));
    sum = lns.add(sum, p[j]);
  }
  for (Lns16& x : p) x = lns.divide(x, sum);
}

}  // namespace

std::vector<std::uint16_t> lns_exponentials(unsigned fraction_bits) {
  const Lns lns(fraction_bits);
  std::vector<std::uint16_t> all(std::size_t{Lns16::code_mask} + 1);
  for (std::size_t code = 0; code < all.size(); ++code)
    all[code] = exponential(lns, Lns16::from(code > 0, static_cast<std::int32_t>(code))).bits;
  return all;
}

CrossEntropy lns_softmax_cross_entropy(const Lns& lns, std::span<const float> logits,
                                       std::span<const std::int32_t> labels, std::size_t classes, float scale,
                                       std::span<float> gradient) {
  require_elements("lns_softmax_cross_entropy: logits", logits.size(), labels.size() * classes);
  if (!gradient.empty()) require_elements("lns_softmax_cross_entropy: gradient", gradient.size(), logits.size());
  const Lns16 one = Lns16::from(false, Lns16::one), factor = lns.encode(double{scale});
  std::vector<Lns16> x(classes), p(classes);
  CrossEntropy all{};
  for (std::size_t row = 0; row < labels.size(); ++row) {
    const std::span<const float> values = logits.subspan(row * classes, classes);
    const auto label = static_cast<std::size_t>(labels[row]);
    lns_encode(lns, values, x);
    const auto top = static_cast<std::size_t>(std::ranges::max_element(values) - values.begin());
    softmax(lns, x, x[top], p);
    all.loss_sum += lns_negative_log(lns.fraction_bits(), p[label]);
    all.correct += top == label ? 1 : 0;
    if (gradient.empty()) continue;
    p[label] = lns.subtract(p[label], one);
    for (Lns16& d : p) d = lns.multiply(d, factor);
    lns_decode(lns, p, gradient.subspan(row * classes, classes));
  }
  return all;
}

}  // namespace gradmeter::kernels
