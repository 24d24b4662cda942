// A wire of scales and codes as kernels see it: sizes worked out on the host.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "compression/codec.hpp"
#include "core/host_device.hpp"

namespace gradmeter::compression::cuda {

/// A warp works on so many elements at a time: each lane on four neighbours in each of four steps.
inline constexpr std::size_t step_elements = 128, steps = 4, piece_elements = step_elements * steps;
/// Warps that may share a bucket; longer buckets are read twice.
inline constexpr std::size_t most_warps = 16;

/// Of n elements. Codes are written up to element `codes_end`, which fills the padding with zeros.
struct WireShape {
  WireShape(const WireLayout& l, std::size_t count)
      : n(count),
        codes_end((count * l.bits + 127) / 128 * 128 / l.bits),
        bucket(l.bucket),
        buckets(l.buckets(count)),
        scale_bytes(l.scales(count)),
        team(static_cast<unsigned>(std::min(most_warps, (l.bucket + piece_elements - 1) / piece_elements))) {}

  /// Buckets are whole multiples of 64, which 32 bits count for all that memory holds.
  GRADMETER_HOST_DEVICE std::size_t bucket_of(std::size_t i) const {
    return static_cast<std::uint32_t>(i / 64) / static_cast<std::uint32_t>(bucket / 64);
  }

  std::size_t n, codes_end, bucket, buckets, scale_bytes;
  unsigned team;  ///< warps for each bucket
};

}  // namespace gradmeter::compression::cuda
