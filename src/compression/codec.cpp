#include "compression/codec.hpp"

#include <cmath>

#include "compression/detail/draws.hpp"

namespace gradmeter::compression {

std::uint64_t Draw::key() const {
  const std::uint64_t place = std::uint64_t{tensor} << 32 | rank;
  using detail::mixed;
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
