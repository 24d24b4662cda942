#include "dataparallel/signs.hpp"

#include <algorithm>
#include <array>
#include <stdexcept>

#include "core/random.hpp"

namespace gradmeter::dataparallel {
namespace {

constexpr std::size_t word_bits = 32;

constexpr std::array<std::uint32_t, word_bits> make_masks() {
  std::array<std::uint32_t, word_bits> masks{};
  for (std::size_t i = 0; i < word_bits; ++i) masks[i] = 1u << i;
  return masks;
}
constexpr auto masks = make_masks();

/// Of a fixed length and with a copy, so that compilers make vectors of it.
void add_word(float* values, std::uint32_t signs, float scale) {
  std::array<float, word_bits> sum;
  std::copy_n(values, word_bits, sum.begin());
  for (std::size_t i = 0; i < word_bits; ++i) sum[i] += (signs & masks[i]) != 0 ? scale : -scale;
  std::copy_n(sum.begin(), word_bits, values);
}

core::PhiloxBlock block(NoiseName n, std::size_t number) {
  // Apart from core::Random of the same seed, which draws initial weights and batches.
  constexpr std::uint32_t purpose = 0x7369676e;  // "sign"
  const auto low = [](std::uint64_t x) { return static_cast<std::uint32_t>(x); };
  return core::philox4x32({low(number), n.member, low(n.step), low(n.step >> 32)},
                          {low(n.seed) ^ purpose, low(n.seed >> 32)});
}

}  // namespace

void add_signs(std::span<float> values, NoiseName name, float scale, std::size_t first) {
  if (first % noise_grain != 0) throw std::logic_error("noise was asked for from within a block");
  for (std::size_t i = 0; i < values.size(); i += noise_grain) {
    const core::PhiloxBlock signs = block(name, (first + i) / noise_grain);
    const std::size_t n = std::min(noise_grain, values.size() - i);
    for (std::size_t at = 0; at < n; at += word_bits) {
      const std::uint32_t word = signs[at / word_bits];
      if (n - at >= word_bits) {
        add_word(values.data() + i + at, word, scale);
      } else {
        for (std::size_t k = 0; k < n - at; ++k) values[i + at + k] += (word & masks[k]) != 0 ? scale : -scale;
      }
    }
  }
}

}  // namespace gradmeter::dataparallel
