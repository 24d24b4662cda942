#include "compression/codec.hpp"

#include <cmath>

namespace gradmeter::compression {
namespace {

/// SplitMix64's finaliser (Steele, Lea, Flood, OOPSLA 2014): every bit of the input reaches every bit of the output.
constexpr std::uint64_t mixed(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

}  // namespace

std::uint64_t Draw::key() const {
  const std::uint64_t place = std::uint64_t{tensor} << 32 | rank;
  return mixed(mixed(mixed(mixed(seed) ^ step) ^ place) ^ phase);
}

std::size_t encode_with_feedback(const Codec& codec, std::span<const float> x, std::span<float> residual,
                                 std::span<float> scratch, std::byte* wire, const Draw& draw) {
  const std::size_t n = x.size();
  for (std::size_t i = 0; i < n; ++i) residual[i] += x[i];
  const std::size_t bytes = codec.encode(residual.first(n), wire, draw);
  codec.decode({wire, bytes}, scratch.first(n));
  for (std::size_t i = 0; i < n; ++i) {
    const float left = residual[i] - scratch[i];
    residual[i] = left - left == 0.0f ? left : 0.0f;  // infinities and NaN are not equal to 0 here
  }
  return bytes;
}

}  // namespace gradmeter::compression
