#include "kernels/lns/lns.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/lns/conversion.hpp"
#include "kernels/problems/shape.hpp"

namespace gradmeter::kernels {

LnsConversionTables::LnsConversionTables(unsigned bits) : number(65536), fraction_bits(bits) {
  const Lns lns(bits);
  constexpr double most = std::numeric_limits<float>::max();
  for (std::size_t w = 0; w < number.size(); ++w)
    number[w] = static_cast<float>(std::clamp(lns.decode({static_cast<std::uint16_t>(w)}), -most, most));
  const std::uint32_t codes = 1U << bits;
  for (std::uint32_t i = 1; i <= codes; ++i)
    begin[i] = static_cast<std::uint32_t>(std::ceil((std::exp2((i - 0.5) / codes) - 1) * 0x1p23));
  begin[codes + 1] = std::numeric_limits<std::uint32_t>::max();
  for (std::uint32_t cell = 0, i = 0; cell < code.size(); ++cell) {
    while (begin[i + 1] <= cell << (LnsConversion::mantissa_bits - LnsConversion::cell_bits)) ++i;
    code[cell] = static_cast<std::uint16_t>(i);
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
  static_cast<void>(lns_tables(fraction_bits));  // refuses others
  return eight;
}

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

void LnsKahan::add(const Lns& lns, Lns16 change, LnsEvents* events) {
  lns_kahan_add(
      w, c, change, [&t = lns.tables()](std::uint32_t d, bool opposite) { return t.g(d, opposite); }, events);
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

}  // namespace gradmeter::kernels
