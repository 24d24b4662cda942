// SPDX-License-Identifier: Apache-2.0
#include "dataparallel/fabric/decorators/checksums.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

namespace gradmeter::dataparallel {
namespace {

constexpr std::size_t lanes = 8;  // independent sums, so that compilers can make vectors of them

/// The weight with number i: of either sign, and of a size from 1/2 to below 1. Computed by the finalizer of
/// MurmurHash3.
float weight(std::uint32_t i, std::uint32_t seed) {
  std::uint32_t h = i * 0x9e3779b9u + seed;
  h = (h ^ h >> 16) * 0x85ebca6bu;
  h = (h ^ h >> 13) * 0xc2b2ae35u;
  h ^= h >> 16;
  return std::bit_cast<float>((h & 0x807fffffu) | 0x3f000000u);
}

/// The odd key of word number i, computed by the finalizer of SplitMix64.
std::uint64_t key(std::uint64_t i, std::uint64_t seed) {
  std::uint64_t h = i * 0x9e3779b97f4a7c15u + seed;
  h = (h ^ h >> 30) * 0xbf58476d1ce4e5b9u;
  h = (h ^ h >> 27) * 0x94d049bb133111ebu;
  return (h ^ h >> 31) | 1;
}

}  // namespace

Projection project(std::span<const float> x, std::uint64_t seed, std::uint64_t first) {
  std::array<double, lanes> products{}, squares{};
  const auto short_seed = static_cast<std::uint32_t>(seed ^ seed >> 32);
  const auto add = [&](std::size_t lane, std::size_t i) {
    const auto v = static_cast<double>(x[i]);
    products[lane] += v * static_cast<double>(weight(static_cast<std::uint32_t>(first + i), short_seed));
    squares[lane] += v * v;
  };
  const std::size_t whole = x.size() / lanes * lanes;
  for (std::size_t i = 0; i < whole; i += lanes) {
    for (std::size_t lane = 0; lane < lanes; ++lane) add(lane, i + lane);
  }
  for (std::size_t i = whole; i < x.size(); ++i) add(i - whole, i);
  Projection sum;
  for (std::size_t lane = 0; lane < lanes; ++lane) {
    sum.product += products[lane];
    sum.square += squares[lane];
  }
  return sum;
}

std::uint64_t linear_hash(std::span<const std::byte> bytes, std::uint64_t seed, std::uint64_t first) {
  constexpr std::size_t width = sizeof(std::uint32_t);
  std::uint64_t sum = 0;
  for (std::size_t at = 0; at < bytes.size(); at += width) {
    std::uint32_t word = 0;
    std::memcpy(&word, bytes.data() + at, std::min(width, bytes.size() - at));
    sum += word * key(first + at / width, seed);
  }
  return sum;
}

}  // namespace gradmeter::dataparallel
