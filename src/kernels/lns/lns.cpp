// SPDX-License-Identifier: Apache-2.0
#include "kernels/lns/lns.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <vector>

#include "kernels/host/memory.hpp"
#include "kernels/host/threads.hpp"
#include "kernels/lns/arithmetic.hpp"

namespace gradmeter::kernels {

LnsConversionTables::LnsConversionTables(unsigned bits) : word_values(65536), fraction_bits(bits) {
  const Lns lns(bits);
  constexpr double most = std::numeric_limits<float>::max();
  for (std::size_t w = 0; w < word_values.size(); ++w)
    word_values[w] = static_cast<float>(std::clamp(lns.decode({static_cast<std::uint16_t>(w)}), -most, most));
  const std::uint32_t codes = 1U << bits;
  for (std::uint32_t i = 1; i <= codes; ++i)
    first_mantissa[i] = static_cast<std::uint32_t>(std::ceil((std::exp2((i - 0.5) / codes) - 1) * 0x1p23));
  first_mantissa[codes + 1] = std::numeric_limits<std::uint32_t>::max();
  for (std::uint32_t cell = 0, i = 0; cell < first_fraction.size(); ++cell) {
    while (first_mantissa[i + 1] <= cell << (LnsConversion::mantissa_bits - LnsConversion::cell_bits)) ++i;
    first_fraction[cell] = static_cast<std::uint16_t>(i);
  }
}

const LnsConversionTables& lns_conversion(unsigned fraction_bits) {
  if (fraction_bits == 6) {
    static const LnsConversionTables six(6);
    return six;
  }
  if (fraction_bits == 7) {
    static const LnsConversionTables seven(7);
    return seven;
  }
  static const LnsConversionTables eight(8);
  static_cast<void>(lns_tables(fraction_bits));  // refuses other numbers of bits
  return eight;
}

Lns16 Lns::encode(double x, LnsEvents* events) const {
  if (x == 0) return {};
  if (std::isnan(x)) {
    if (events) ++events->nans;
    return {};
  }
  // The bounds of the clamp lie beyond every code, but can be converted to an integer.
  const double code = std::clamp(std::log2(std::fabs(x)) * double(1U << fraction_bits()), -0x1p20, 0x1p20);
  return lns_word(std::signbit(x), static_cast<std::int32_t>(std::lround(code)) + Lns16::one, events);
}

double Lns::decode(Lns16 x) const {
  if (x.zero()) return 0;
  const double size = std::exp2(double(x.code() - Lns16::one) / double(1U << fraction_bits()));
  return x.negative() ? -size : size;
}

void lns_encode(const Lns& lns, std::span<const float> values, std::span<Lns16> words, LnsEvents* events) {
  require_elements("lns_encode: words", words.size(), values.size());
  const LnsConversion tables = lns_conversion(lns.fraction_bits()).view();
  for (std::size_t i = 0; i < values.size(); ++i) words[i] = lns_encode(tables, values[i], events);
}

void lns_decode(const Lns& lns, std::span<const Lns16> words, std::span<float> values) {
  require_elements("lns_decode: values", values.size(), words.size());
  const LnsConversion tables = lns_conversion(lns.fraction_bits()).view();
  for (std::size_t i = 0; i < words.size(); ++i) values[i] = lns_decode(tables, words[i]);
}

namespace {

constexpr std::size_t update_grain = 1 << 14;  // the fewest elements for each thread

/// Adds change(tables, i) to each weight w[i].
template <class Change>
void change_each(LnsUpdateRule u, std::span<float> w, std::span<float> carry, const Change& change) {
  if (u.kahan) require_elements("lns update: carry", carry.size(), w.size());
  const LnsConversion t = lns_conversion(u.fraction_bits).view();
  const LnsTables& sums = lns_tables(u.fraction_bits);
  split(w.size(), update_grain, [&](std::size_t first, std::size_t n) {
    const auto table = [&sums](std::uint32_t d, bool opposite) { return sums.g(d, opposite); };
    for (std::size_t i = first; i < first + n; ++i)
      lns_change(t, table, w[i], u.kahan ? &carry[i] : nullptr, change(t, i));
  });
}

}  // namespace

void lns_round(unsigned fraction_bits, std::span<float> weights) {
  const LnsConversion t = lns_conversion(fraction_bits).view();
  for (float& w : weights) w = lns_decode(t, lns_encode(t, w, nullptr));
}

void lns_update(LnsUpdateRule u, std::span<float> w, std::span<const float> target, std::span<float> carry) {
  require_elements("lns_update: target", target.size(), w.size());
  change_each(u, w, carry, [=](const auto& t, std::size_t i) { return lns_encode(t, target[i] - w[i], nullptr); });
}

void lns_descend(LnsUpdateRule u, std::span<float> w, std::span<const float> g, float step, std::span<float> carry) {
  require_elements("lns_descend: g", g.size(), w.size());
  const Lns16 factor = Lns(u.fraction_bits).encode(-double{step});
  change_each(u, w, carry, [=](const auto& t, std::size_t i) {
    return lns_multiply(lns_encode(t, g[i], nullptr), factor, nullptr);
  });
}

namespace {

/// exp x for x ≤ 0, which is at most 1.
Lns16 exponential(const Lns& lns, Lns16 x) {
  const double code = lns.decode(x) * std::numbers::log2e * double(1U << lns.fraction_bits());
  const auto below_one = std::lround(std::max(code, -double{Lns16::one}));
  return below_one <= -Lns16::one ? Lns16{} : Lns16::from(false, Lns16::one + static_cast<std::int32_t>(below_one));
}

/// Writes the probabilities of one row, whose largest logit is `largest`, to p.
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
  std::vector<std::uint16_t> exponentials(std::size_t{Lns16::code_mask} + 1);
  for (std::size_t code = 0; code < exponentials.size(); ++code)
    exponentials[code] = exponential(lns, Lns16::from(code > 0, static_cast<std::int32_t>(code))).bits;
  return exponentials;
}

CrossEntropy lns_softmax_cross_entropy(const Lns& lns, std::span<const float> logits,
                                       std::span<const std::int32_t> labels, std::size_t classes, float scale,
                                       std::span<float> gradient) {
  require_elements("lns_softmax_cross_entropy: logits", logits.size(), labels.size() * classes);
  if (!gradient.empty()) require_elements("lns_softmax_cross_entropy: gradient", gradient.size(), logits.size());
  const Lns16 one = Lns16::from(false, Lns16::one), factor = lns.encode(double{scale});
  std::vector<Lns16> x(classes), p(classes);
  CrossEntropy total{};
  for (std::size_t row = 0; row < labels.size(); ++row) {
    const std::span<const float> values = logits.subspan(row * classes, classes);
    const auto label = static_cast<std::size_t>(labels[row]);
    lns_encode(lns, values, x);
    const auto top = static_cast<std::size_t>(std::ranges::max_element(values) - values.begin());
    softmax(lns, x, x[top], p);
    total.loss_sum += lns_negative_log(lns.fraction_bits(), p[label]);
    total.correct += top == label ? 1 : 0;
    if (gradient.empty()) continue;
    p[label] = lns.subtract(p[label], one);
    for (Lns16& d : p) d = lns.multiply(d, factor);
    lns_decode(lns, p, gradient.subspan(row * classes, classes));
  }
  return total;
}

}  // namespace gradmeter::kernels
