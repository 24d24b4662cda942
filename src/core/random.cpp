// SPDX-License-Identifier: Apache-2.0
// Highway compiles this file once for every instruction set, and chooses one at run time.
#include "core/random.hpp"

#include <random>
#include <stdexcept>

#include "core/format.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/random.cpp"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace gradmeter::core::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// Computes philox4x32 for one block in each 64-bit lane. Every 32-bit word is in the lower half of its lane; the upper
/// halves hold remains of products, which no multiplication reads. Returns the number of draws made: `n` rounded down
/// to whole vectors.
std::size_t Bits(std::uint64_t seed, std::uint64_t stream, std::uint64_t first, std::uint64_t* HWY_RESTRICT out,
                 std::size_t n) {
#if HWY_TARGET == HWY_SCALAR  // one lane cannot hold two words
  (void)seed, (void)stream, (void)first, (void)out, (void)n;
  return 0;
#else
  const hn::ScalableTag<std::uint64_t> d;
  const hn::Repartition<std::uint32_t, decltype(d)> words;
  const std::size_t lanes = hn::Lanes(d);
  const auto product = [&](auto a, auto b) { return hn::MulEven(hn::BitCast(words, a), hn::BitCast(words, b)); };
  const auto multiplier0 = hn::Set(d, philox_multiplier0), multiplier1 = hn::Set(d, philox_multiplier1);
  const auto lower = hn::Set(d, 0xffffffffu);
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    auto c0 = hn::Iota(d, first + i), c1 = hn::ShiftRight<32>(c0);
    auto c2 = hn::Set(d, stream & 0xffffffffu), c3 = hn::Set(d, stream >> 32);
    auto k0 = static_cast<std::uint32_t>(seed), k1 = static_cast<std::uint32_t>(seed >> 32);
    for (int round = 0; round < philox_rounds; ++round, k0 += philox_weyl0, k1 += philox_weyl1) {
      const auto product0 = product(multiplier0, c0), product1 = product(multiplier1, c2);
      c0 = hn::Xor(hn::ShiftRight<32>(product1), hn::Xor(c1, hn::Set(d, std::uint64_t{k0})));
      c1 = product1;
      c2 = hn::Xor(hn::ShiftRight<32>(product0), hn::Xor(c3, hn::Set(d, std::uint64_t{k1})));
      c3 = product0;
    }
    hn::StoreU(hn::Or(hn::And(c0, lower), hn::ShiftLeft<32>(c1)), d, out + i);
  }
  return i;
#endif
}

}  // namespace gradmeter::core::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gradmeter::core {

HWY_EXPORT(Bits);

namespace {

__extension__ using Wide = unsigned __int128;

using detail::high_half, detail::join, detail::low_half;

}  // namespace

std::uint64_t unpredictable_seed() {
  std::random_device entropy;
  return join(entropy(), entropy());
}

std::uint64_t Random::bits(std::uint64_t i) const { return random_bits(seed_, stream_, i); }

void Random::bits(std::uint64_t first, std::span<std::uint64_t> out) const {
  for (std::size_t i = HWY_DYNAMIC_DISPATCH(Bits)(seed_, stream_, first, out.data(), out.size()); i < out.size(); ++i) {
    out[i] = bits(first + i);
  }
}

double Random::uniform(std::uint64_t i) const { return uniform_of(bits(i)); }

double Random::gaussian(std::uint64_t i) const {
  // Uses the upper halves of the blocks, which `bits` never uses, so the result is independent of `uniform`'s draws.
  double sum = 0;
  for (std::uint64_t k = 0; k < 12; ++k) {
    const PhiloxBlock b = random_block(seed_, stream_, 12 * i + k);
    sum += uniform_of(join(b[2], b[3]));
  }
  return sum - 6;
}

std::uint64_t Random::below(std::uint64_t i, std::uint64_t n) const {
  return static_cast<std::uint64_t>(Wide{bits(i)} * n >> 64);
}

Permutation::Permutation(std::uint64_t n, std::uint64_t seed) : n_(n), half_bits_(1), seed_(seed) {
  while (n > 0 && half_bits_ < 32 && (n - 1) >> (2 * half_bits_) != 0) ++half_bits_;
}

std::uint64_t Permutation::encrypt(std::uint64_t x) const {
  // Four rounds suffice in theory, but short halves mix better with six.
  constexpr std::uint32_t rounds = 6;
  const std::uint64_t mask = (std::uint64_t{1} << half_bits_) - 1;
  std::uint64_t left = x >> half_bits_, right = x & mask;
  for (std::uint32_t round = 0; round < rounds; ++round) {
    const PhiloxBlock b = philox4x32({low_half(right), round, 0, 0}, {low_half(seed_), high_half(seed_)});
    const std::uint64_t next = left ^ (b[0] & mask);
    left = right;
    right = next;
  }
  return left << half_bits_ | right;
}

std::uint64_t Permutation::operator()(std::uint64_t i) const {
  // From a number outside of [0, n), the walk could follow a cycle that never enters [0, n).
  if (i >= n_) throw std::out_of_range(fmt::format("place {} of a permutation of {}", i, n_));
  // The network permutes up to 4n numbers, so it is applied until the result is below n: less than 4 times on average.
  do {
    i = encrypt(i);
  } while (i >= n_);
  return i;
}

}  // namespace gradmeter::core
#endif
