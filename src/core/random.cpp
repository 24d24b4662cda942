#include "core/random.hpp"

#include <stdexcept>

#include "core/format.hpp"

namespace gradmeter::core {

namespace {

__extension__ using Wide = unsigned __int128;

constexpr std::uint64_t join(std::uint32_t low, std::uint32_t high) { return std::uint64_t{high} << 32 | low; }
constexpr std::uint32_t low_half(std::uint64_t x) { return static_cast<std::uint32_t>(x); }
constexpr std::uint32_t high_half(std::uint64_t x) { return static_cast<std::uint32_t>(x >> 32); }
constexpr double unit_interval(std::uint64_t bits) { return static_cast<double>(bits >> 11) * 0x1p-53; }

/// Each (seed, stream, i) is one block of its own: seed, stream and i fill key and counter exactly.
PhiloxBlock block(std::uint64_t seed, std::uint64_t stream, std::uint64_t i) {
  return philox4x32({low_half(i), high_half(i), low_half(stream), high_half(stream)},
                    {low_half(seed), high_half(seed)});
}

}  // namespace

PhiloxBlock philox4x32(PhiloxBlock counter, std::array<std::uint32_t, 2> key) {
  // Plain variables: of arrays a sanitizer watches every access, and most tests under it would spend their time here.
  std::uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3], k0 = key[0], k1 = key[1];
  for (int round = 0; round < philox_rounds; ++round) {
    const std::uint64_t product0 = philox_multiplier0 * c0, product1 = philox_multiplier1 * c2;
    c0 = high_half(product1) ^ c1 ^ k0;
    c1 = low_half(product1);
    c2 = high_half(product0) ^ c3 ^ k1;
    c3 = low_half(product0);
    k0 += philox_weyl0;
    k1 += philox_weyl1;
  }
  return {c0, c1, c2, c3};
}

std::uint64_t Random::bits(std::uint64_t i) const {
  const PhiloxBlock b = block(seed_, stream_, i);
  return join(b[0], b[1]);
}

double Random::uniform(std::uint64_t i) const { return unit_interval(bits(i)); }

double Random::gaussian(std::uint64_t i) const {
  // The upper halves of the blocks, which `bits` never uses: independent of `uniform`'s draws.
  double sum = 0;
  for (std::uint64_t k = 0; k < 12; ++k) {
    const PhiloxBlock b = block(seed_, stream_, 12 * i + k);
    sum += unit_interval(join(b[2], b[3]));
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
  // Four rounds suffice in theory; small halves mix better with two more.
  constexpr std::uint32_t kRounds = 6;
  const std::uint64_t mask = (std::uint64_t{1} << half_bits_) - 1;
  std::uint64_t left = x >> half_bits_, right = x & mask;
  for (std::uint32_t round = 0; round < kRounds; ++round) {
    const PhiloxBlock b = philox4x32({low_half(right), round, 0, 0}, {low_half(seed_), high_half(seed_)});
    const std::uint64_t next = left ^ (b[0] & mask);
    left = right;
    right = next;
  }
  return left << half_bits_ | right;
}

std::uint64_t Permutation::operator()(std::uint64_t i) const {
  // From a place outside, the walk could be in a cycle that never comes back.
  if (i >= n_) throw std::out_of_range(fmt::format("place {} of a permutation of {}", i, n_));
  // The network permutes up to 4n places: walk on until the image lies inside. Below 4 steps on average.
  do {
    i = encrypt(i);
  } while (i >= n_);
  return i;
}

}  // namespace gradmeter::core
