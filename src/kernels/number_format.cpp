// SPDX-License-Identifier: Apache-2.0
#include "kernels/number_format.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <stdexcept>
#include <vector>

#include "core/element.hpp"
#include "core/format.hpp"
#include "core/random.hpp"
#include "kernels/host/threads.hpp"
#include "kernels/lns/lns.hpp"

namespace gradmeter::kernels {
namespace {

template <core::Element element>
NumberFormat element_format(double lowest = 0, std::size_t levels = 0) {
  return {.name = core::info(element).name,
          .bytes = core::size_of(element),
          .load = [](const std::byte* from) { return core::load(element, from); },
          .store = [](std::byte* to, double value) { core::store(element, to, value); },
          .lowest = lowest,
          .levels = levels};
}

template <unsigned fraction_bits>
constexpr NumberFormat logarithms(std::string_view name) {
  return {.name = name,
          .bytes = sizeof(Lns16),
          .load =
              [](const std::byte* from) {
                Lns16 x;
                std::memcpy(&x, from, sizeof x);
                return Lns(fraction_bits).decode(x);
              },
          .store =
              [](std::byte* to, double value) {
                const Lns16 x = Lns(fraction_bits).encode(value);
                std::memcpy(to, &x, sizeof x);
              }};
}

}  // namespace

const NumberFormat& number_format(core::Element element) {
  static const NumberFormat f32 = element_format<core::Element::f32>(), bf16 = element_format<core::Element::bf16>(),
                            f16 = element_format<core::Element::f16>(), i32 = element_format<core::Element::i32>(),
                            i8 = element_format<core::Element::i8>(-127, 255);
  switch (element) {
    case core::Element::f32:
      return f32;
    case core::Element::bf16:
      return bf16;
    case core::Element::f16:
      return f16;
    case core::Element::i32:
      return i32;
    case core::Element::i8:
      return i8;
    default:
      throw std::logic_error("no kernel computes with this type of element");
  }
}

std::byte unwritten_byte(const NumberFormat& f) {
  return f == number_format(core::Element::i32) ? std::byte{0x5a} : std::byte{0xff};
}

const NumberFormat& lns_number_format(unsigned fraction_bits) {
  static constexpr std::array formats{logarithms<6>("lns16-f6"), logarithms<7>("lns16-f7"), logarithms<8>("lns16")};
  return formats.at(fraction_bits - 6);
}

const NumberFormat& format_u8() {
  static const NumberFormat format{
      .name = "uint8",
      .bytes = 1,
      .load = [](const std::byte* from) { return static_cast<double>(static_cast<std::uint8_t>(*from)); },
      .store = [](std::byte* to, double x) { *to = static_cast<std::byte>(static_cast<std::uint8_t>(x)); },
      .lowest = 0,
      .levels = 256};
  return format;
}

double scale_for_random(const NumberFormat& format) {
  return format == number_format(core::Element::i8) ? largest_int8_weight() / 127 : 1;
}

void fill_random(std::span<std::byte> memory, const NumberFormat& format, std::uint64_t seed, double scale) {
  RandomTableIndices places(core::Random(seed, 0x7261).bits(0));
  const auto draws = gaussian_draws();
  const bool gaussian = format.levels == 0;
  if (!gaussian && format.lowest >= 0) scale = 1;
  for (std::size_t at = 0; at < memory.size(); at += format.bytes) {
    const std::size_t place = places.next();
    const double value = gaussian ? draws[place] : static_cast<double>(place % format.levels) + format.lowest;
    format.store(memory.data() + at, value * scale);
  }
}

void fill_repeating(std::span<std::byte> memory, const NumberFormat& format, std::uint64_t seed, double scale) {
  constexpr std::size_t drawn_elements = std::size_t{1} << 16;
  const std::span<std::byte> drawn = memory.first(std::min(memory.size(), drawn_elements * format.bytes));
  fill_random(drawn, format, seed, scale);
  for (std::size_t done = drawn.size(); done < memory.size(); done += drawn.size())
    std::memcpy(&memory[done], drawn.data(), std::min(drawn.size(), memory.size() - done));
}

double random_root_mean_square(const NumberFormat& format) {
  if (format.levels == 0) return 1;
  const auto n = static_cast<double>(format.levels);
  const double mean = format.lowest + (n - 1) / 2;
  return std::sqrt(mean * mean + (n * n - 1) / 12);
}

void round_to_fp8(std::span<float> x, core::Element element) {
  const core::SmallFormat format = core::small_format(element);
  float most = 0;
  for (const float v : x)
    if (std::isfinite(v)) most = std::max(most, std::fabs(v));
  const float scale = core::to_float(format, format.largest()) / (most > 0 ? most : 1);
  constexpr std::size_t grain = 1 << 12;  // elements for each thread at least
  split(x.size(), grain, [&](std::size_t first, std::size_t n) {
    for (float& v : x.subspan(first, n))
      if (std::isfinite(v))
        v = core::to_float(format, core::from_float(format, v * scale, core::Overflow::saturate)) / scale;
  });
}

Quantization quantize_range(float least, float greatest) {
  if (!(least <= 0 && greatest >= 0 && std::isfinite(greatest - least)))
    throw std::invalid_argument(fmt::format("no range of activations: {} to {}", least, greatest));
  if (least == greatest) return {};
  const float quantum = (greatest - least) / 255;
  return {.quantum = quantum, .zero_point = static_cast<int>(std::lround(-least / quantum))};
}

void raise_to_largest(std::span<const float> weights, std::size_t weights_per_output, std::span<float> largest) {
  for (std::size_t i = 0; i < weights.size(); ++i) {
    float& l = largest[i / weights_per_output % largest.size()];
    l = std::max(l, std::fabs(weights[i]));
  }
}

void to_weight_quanta(std::span<float> largest) {
  const auto steps = static_cast<float>(largest_int8_weight());
  for (float& l : largest) l = l > 0 ? l / steps : 1.0F;
}

float rnn_weights_scale(const RnnShape& s) {
  const double largest_scale = largest_int8_weight() * std::sqrt(static_cast<double>(s.hidden)) / 6;
  return static_cast<float>(std::exp2(std::floor(std::log2(largest_scale))));
}

std::span<const double> gaussian_draws() {
  static const std::vector<double> draws = [] {
    const core::Random random(0, 0x6761);
    std::vector<double> table(draw_table_size);
    for (std::size_t i = 0; i < table.size(); ++i) table[i] = random.gaussian(i);
    return table;
  }();
  return draws;
}

void fill_gaussian(std::span<float> values, std::uint64_t seed, double scale) {
  const auto draws = gaussian_draws();
  RandomTableIndices places(core::Random(seed, 0x6761).bits(0));
  for (float& x : values) x = static_cast<float>(draws[places.next()] * scale);
}

}  // namespace gradmeter::kernels
