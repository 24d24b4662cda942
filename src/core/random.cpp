#include "core/random.hpp"

#include <random>
#include <stdexcept>

#include "core/format.hpp"

namespace gradmeter::core {

namespace {

__extension__ using Wide = unsigned __int128;

using detail::high_half, detail::join, detail::low_half;
constexpr double unit_interval(std::uint64_t bits) { return static_cast<double>(bits >> 11) * 0x1p-53; }

}  // namespace

std::uint64_t unpredictable_seed() {
  std::random_device entropy;
  return join(entropy(), entropy());
}

std::uint64_t Random::bits(std::uint64_t i) const { return random_bits(seed_, stream_, i); }

double Random::uniform(std::uint64_t i) const { return unit_interval(bits(i)); }

double Random::gaussian(std::uint64_t i) const {
  // The upper halves of the blocks, which `bits` never uses: independent of `uniform`'s draws.
  double sum = 0;
  for (std::uint64_t k = 0; k < 12; ++k) {
    const PhiloxBlock b = random_block(seed_, stream_, 12 * i + k);
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
