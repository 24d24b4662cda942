#include "dataparallel/signs.hpp"

#include <algorithm>
#include <array>

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

/// One noise, a block of it at a time.
class Signs {
 public:
  explicit Signs(NoiseName name) : name_(name) {}

  void add(float* values, std::size_t count, std::size_t first, float scale) {
    for (std::size_t i = 0; i < count;) {
      const std::size_t at = first + i, bit = at % word_bits, n = std::min(word_bits - bit, count - i);
      const std::uint32_t word = word_at(at);
      if (n == word_bits) {
        add_word(values + i, word, scale);
      } else {
        for (std::size_t k = 0; k < n; ++k) values[i + k] += (word & masks[bit + k]) != 0 ? scale : -scale;
      }
      i += n;
    }
  }

 private:
  std::uint32_t word_at(std::size_t place) {
    if (place / block_signs != number_) {
      number_ = place / block_signs;
      block_ = block(name_, number_);
    }
    return block_[place % block_signs / word_bits];
  }

  static constexpr std::size_t block_signs = 128;
  NoiseName name_;
  std::size_t number_ = SIZE_MAX;
  core::PhiloxBlock block_{};
};

}  // namespace

void add_signs(std::span<float> values, NoiseName name, float scale, std::size_t first) {
  Signs(name).add(values.data(), values.size(), first, scale);
}

std::vector<NoiseRun> noise_runs(std::span<const model::Tensor> tensors, std::size_t longest) {
  std::vector<NoiseRun> runs;
  const auto add = [&](std::size_t at, std::size_t count, std::size_t first) {
    for (std::size_t i = 0; i < count; i += longest) {
      runs.push_back({.at = at + i, .count = std::min(longest, count - i), .first = first + i});
    }
  };
  for (const model::Tensor& t : tensors) {
    const model::WholePlace w = t.whole.columns > 0 ? t.whole : model::WholePlace{t.offset, t.count, t.count};
    if (w.columns == w.stride) {
      add(t.offset, t.count, w.first);
      continue;
    }
    for (std::size_t i = 0, row = 0; i < t.count; i += w.columns, ++row) {
      add(t.offset + i, w.columns, w.first + row * w.stride);
    }
  }
  return runs;
}

void add_signs(std::span<float> values, std::span<const NoiseRun> runs, NoiseName name, float scale) {
  Signs signs(name);
  for (const NoiseRun& r : runs) signs.add(values.data() + r.at, r.count, r.first, scale);
}

}  // namespace gradmeter::dataparallel
