#include "kernels/lns/lns.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/problems/shape.hpp"

namespace gradmeter::kernels {

namespace {

constexpr unsigned mantissa_bits = 23;
constexpr std::uint32_t mantissa_mask = (1U << mantissa_bits) - 1;

// What conversion of whole buffers looks up: each word's number, and where in fp32's mantissas each code begins. A cell
// of 2^-9 is narrower than any code (0.27 % is 2^-8.5), so that at most one code begins inside.
struct CodeTable {
  static constexpr unsigned cell_bits = 9;
  std::vector<float> number = std::vector<float>(65536);
  std::array<std::uint16_t, std::size_t{1} << cell_bits> code{};
  std::array<std::uint32_t, 258> begin{};  // the first mantissa of code i

  explicit CodeTable(unsigned fraction_bits) {
    const Lns lns(fraction_bits);
    constexpr double most = std::numeric_limits<float>::max();
    for (std::size_t w = 0; w < number.size(); ++w)
      number[w] = static_cast<float>(std::clamp(lns.decode({static_cast<std::uint16_t>(w)}), -most, most));
    const std::uint32_t codes = 1U << fraction_bits;
    for (std::uint32_t i = 1; i <= codes; ++i)
      begin[i] = static_cast<std::uint32_t>(std::ceil((std::exp2((i - 0.5) / codes) - 1) * 0x1p23));
    begin[codes + 1] = std::numeric_limits<std::uint32_t>::max();
    for (std::uint32_t cell = 0, i = 0; cell < code.size(); ++cell) {
      while (begin[i + 1] <= cell << (mantissa_bits - cell_bits)) ++i;
      code[cell] = static_cast<std::uint16_t>(i);
    }
  }
};

const CodeTable& conversion(unsigned fraction_bits) {
  if (fraction_bits == 6) {
    static const CodeTable six(6);
    return six;
  }
  if (fraction_bits == 7) {
    static const CodeTable seven(7);
    return seven;
  }
  static const CodeTable eight(8);
  return eight;
}

}  // namespace

Lns16 Lns::encode(double x, LnsEvents* events) const {
  if (x == 0) return {};
  if (std::isnan(x)) {
    if (events) ++events->nans;
    return {};
  }
  // Beyond every code on either side, and safe to make an integer of.
  const double code = std::clamp(std::log2(std::fabs(x)) * double(1U << fraction_bits()), -0x1p20, 0x1p20);
  return lns_word(std::signbit(x), static_cast<std::int32_t>(std::lround(code)) + Lns16::one, events);
}

double Lns::decode(Lns16 x) const {
  if (x.zero()) return 0;
  const double size = std::exp2(double(x.code() - Lns16::one) / double(1U << fraction_bits()));
  return x.negative() ? -size : size;
}

Lns16 Lns::divide(Lns16 x, Lns16 y, LnsEvents* events) const {
  if (y.zero() && x.zero()) {
    if (events) ++events->nans;
    return {};
  }
  if (x.zero()) return {};
  if (y.zero()) return lns_word(x.negative(), Lns16::largest + 1, events);
  return lns_word(x.negative() != y.negative(), x.code() - y.code() + Lns16::one, events);
}

void LnsKahan::add(const Lns& lns, Lns16 change, LnsEvents* events) {
  const Lns16 y = lns.subtract(change, c, events), t = lns.add(w, y, events);
  c = lns.subtract(lns.subtract(t, w, events), y, events);
  w = t;
}

void lns_encode(const Lns& lns, std::span<const float> values, std::span<Lns16> words, LnsEvents* events) {
  require_elements("lns_encode: words", words.size(), values.size());
  const CodeTable& table = conversion(lns.fraction_bits());
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto bits = std::bit_cast<std::uint32_t>(values[i]);
    const std::uint32_t exponent = bits >> mantissa_bits & 0xff, mantissa = bits & mantissa_mask;
    const std::uint32_t guess = table.code[mantissa >> (mantissa_bits - CodeTable::cell_bits)];
    const auto fraction = static_cast<std::int32_t>(guess + (mantissa >= table.begin[guess + 1] ? 1 : 0));
    const std::int32_t code =
        (static_cast<std::int32_t>(exponent) - 127) * (1 << lns.fraction_bits()) + fraction + Lns16::one;
    // Zeros, subnormals, infinities, NaNs and what leaves the range take the long way, which counts.
    const bool plain = exponent != 0 && exponent != 255 && code >= 1 && code <= Lns16::largest;
    words[i] = plain ? Lns16::from(bits >> 31 != 0, code) : lns.encode(double{values[i]}, events);
  }
}

void lns_decode(const Lns& lns, std::span<const Lns16> words, std::span<float> values) {
  require_elements("lns_decode: values", values.size(), words.size());
  const std::vector<float>& number = conversion(lns.fraction_bits()).number;
  for (std::size_t i = 0; i < words.size(); ++i) values[i] = number[words[i].bits];
}

}  // namespace gradmeter::kernels
