// Four neighbours of a tensor at a time, and their codes in one word: what kernels read and write of floats and wires.
#pragma once
#include <cstddef>
#include <cstdint>

#include "runtime/cuda/launch.hpp"

namespace gradmeter::compression::cuda {

/// Four neighbours.
struct Quad {
  float v[4];
};

/// Elements i … i + 3, i a multiple of 4; those from `end` on are 0. `aligned`: x begins at a multiple of 16 bytes.
__device__ inline Quad read_quad(const float* x, bool aligned, std::size_t i, std::size_t end) {
  Quad q{};
  if (aligned && i + 4 <= end) {
    const float4 all = *reinterpret_cast<const float4*>(x + i);
    return {all.x, all.y, all.z, all.w};
  }
  for (unsigned c = 0; c < 4; ++c) {
    if (i + c < end) q.v[c] = x[i + c];
  }
  return q;
}

__device__ inline void write_quad(const Quad& q, float* x, bool aligned, std::size_t i, std::size_t end) {
  if (aligned && i + 4 <= end) {
    *reinterpret_cast<float4*>(x + i) = float4{q.v[0], q.v[1], q.v[2], q.v[3]};
    return;
  }
  for (unsigned c = 0; c < 4; ++c) {
    if (i + c < end) x[i + c] = q.v[c];
  }
}

/// The codes of elements i … i + 3, the first in the lowest bits.
template <std::size_t bits>
__device__ inline std::uint32_t read_codes(const std::byte* codes, std::size_t i) {
  static_assert(bits == 1 || bits == 2 || bits == 4 || bits == 8);
  if constexpr (bits == 8) return *reinterpret_cast<const std::uint32_t*>(codes + i);
  if constexpr (bits == 4) return *reinterpret_cast<const std::uint16_t*>(codes + i / 2);
  if constexpr (bits == 2) return *reinterpret_cast<const std::uint8_t*>(codes + i / 4);
  return *reinterpret_cast<const std::uint8_t*>(codes + i / 8) >> (i % 8) & 15u;
}

/// Called by all lanes of a warp, whose quads follow one another; writes where `inside`. With one bit two lanes share a
/// byte: both are inside or neither is.
template <std::size_t bits>
__device__ inline void write_codes(std::uint32_t word, std::byte* codes, std::size_t i, bool inside) {
  if constexpr (bits == 1) {
    const std::uint32_t next = __shfl_down_sync(~0u, word, 1);
    if (inside && i % 8 == 0)
      *reinterpret_cast<std::uint8_t*>(codes + i / 8) = static_cast<std::uint8_t>(word | next << 4);
    return;
  }
  if (!inside) return;
  if constexpr (bits == 8) *reinterpret_cast<std::uint32_t*>(codes + i) = word;
  if constexpr (bits == 4) *reinterpret_cast<std::uint16_t*>(codes + i / 2) = static_cast<std::uint16_t>(word);
  if constexpr (bits == 2) *reinterpret_cast<std::uint8_t*>(codes + i / 4) = static_cast<std::uint8_t>(word);
}

template <class T>
__device__ inline T load_at(const std::byte* from) {
  return *reinterpret_cast<const T*>(from);
}

/// Whether floats can be moved four at a time.
inline bool whole_quads(const void* address) { return reinterpret_cast<std::uintptr_t>(address) % sizeof(float4) == 0; }

}  // namespace gradmeter::compression::cuda
