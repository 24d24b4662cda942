// SPDX-License-Identifier: Apache-2.0
// The kernels of the bucketed codecs, one set for each rule (detail/bucketed.hpp), and of `terngrad`, for which the
// tensor is the only bucket.
#pragma once
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "compression/codec.hpp"
#include "compression/cuda/device_codec.hpp"
#include "compression/detail/bucketed.hpp"
#include "core/host_device.hpp"

namespace gradmeter::compression::cuda {

/// A warp works on a piece of 512 elements at a time, in four steps: in each step, each lane has four neighbouring
/// elements.
inline constexpr std::size_t step_elements = 128, steps_of_piece = 4, piece_elements = step_elements * steps_of_piece;
/// The most warps that may share a bucket; a bucket with more pieces than this is read twice.
inline constexpr std::size_t most_warps = 16;
/// The number of pieces in a group. A block joins the results of one group, since a single block for all pieces of a
/// tensor of 64 MiB would take longer than the kernel that computes the results. The number is a power of two, so that
/// groups are subtrees of detail::TreeSum.
inline constexpr std::size_t group_pieces = 1024;

/// The wire of n elements as kernels see it, with sizes that the host has computed. Codes are written up to element
/// `codes_end`, beyond n, so that the padding is filled with zeros.
struct WireShape {
  WireShape(const WireLayout& l, std::size_t count)
      : n(count),
        codes_end((count * l.bits + 127) / 128 * 128 / l.bits),
        bucket(l.bucket),
        buckets(l.buckets(count)),
        scale_bytes(l.scale_bytes(count)),
        warps_per_bucket(
            static_cast<unsigned>(std::min(most_warps, (l.bucket + piece_elements - 1) / piece_elements))) {}

  /// The index of the bucket of element i, for codecs with scales, whose buckets are multiples of 64 elements long. The
  /// division counts in units of 64 elements, for which 32 bits suffice for every n that memory holds.
  GRADMETER_HOST_DEVICE std::size_t bucket_of(std::size_t i) const {
    return static_cast<std::uint32_t>(i / 64) / static_cast<std::uint32_t>(bucket / 64);
  }

  std::size_t n, codes_end, bucket, buckets, scale_bytes;
  unsigned warps_per_bucket;  ///< warps for each bucket
};

/// The addresses of all wires, as a kernel's parameter, so that nothing is copied to the device before a launch.
struct Wires {
  const std::byte* address[most_wires];
  unsigned count;
};

/// Each function queues its work on the stream; n is at least 1. `addend`: null where nothing is added. Wires begin at
/// multiples of 16 bytes. Cost, in bytes of device memory that are read and written for each element, with b bits a
/// code: encode 4 + b/8, for buckets of more than 8192 elements 8 + b/8; decode 4 + b/8, and 4 more where it adds;
/// reduce (P + 1)·b/8 for P wires.
/// Errors: BackendError.
struct BucketedKernels {
  void (*encode)(const float* x, const WireShape&, detail::Norm, const detail::Draws&, std::byte* wire, cudaStream_t);
  void (*decode)(const std::byte* wire, const WireShape&, const float* addend, float* out, cudaStream_t);
  void (*reduce)(const Wires&, const WireShape&, detail::Norm, const detail::Draws&, std::byte* out, cudaStream_t);
};

/// The kernels of each codec. `bits` is 2, 4 or 8.
const BucketedKernels& qsgd_kernels(std::size_t bits, detail::Rounding);
const BucketedKernels& qsgd1_kernels();
const BucketedKernels& fp8_kernels(bool e4m3);
const BucketedKernels& lns4_kernels();
const BucketedKernels& natural_kernels();

/// The kernels of `fp16` and `bf16`, which have no scales and use neither norm nor draws.
const BucketedKernels& cast_kernels(bool fp16);

/// The kernels of `onebit`, which use neither norm nor draws. `two_means`: whether each sign has a mean of its own.
const BucketedKernels& onebit_kernels(bool two_means);

// The kernels of `terngrad`.

/// The bytes of `terngrad`'s workspace, which holds a sum and a maximum for each 512 elements.
std::size_t terngrad_workspace(std::size_t n);

/// All three queue their work on the stream; n is at least 1. terngrad_encode encodes a tensor, terngrad_reduce the sum
/// of several wires; terngrad_decode decodes one wire, and adds it to `addend` unless that is null. Elements are
/// clipped to `clip` times their root mean square; 0: no clipping. `workspace` [terngrad_workspace(n)] may be reused
/// once the stream has passed the call. Cost: reads and writes 8.25 bytes of device memory an element to encode, (2P +
/// 1)/4 for a sum of P wires, 4.25 to decode, and 4 more to add. Errors: BackendError.
void terngrad_encode(DeviceSpan<const float> x, double clip, const detail::Draws&, std::byte* wire,
                     std::byte* workspace, cudaStream_t);
void terngrad_reduce(const Wires&, std::size_t n, double clip, const detail::Draws&, std::byte* out,
                     std::byte* workspace, cudaStream_t);
void terngrad_decode(const std::byte* wire, const float* addend, DeviceSpan<float> out, cudaStream_t);

/// The parts of `terngrad` for a sum of integers with one scale for all ranks, as in codecs/quantized.hpp. `scale` [1]
/// is in device memory. After ternary_scale and before ternary_quantise, the caller replaces it by the largest of all
/// ranks' scales. Errors: std::invalid_argument, BackendError.
void ternary_scale(DeviceSpan<const float> x, double clip, DeviceSpan<float> scale, std::byte* workspace, cudaStream_t);
void ternary_quantise(DeviceSpan<const float> x, DeviceSpan<const float> scale, DeviceSpan<std::int8_t> codes,
                      const detail::Draws&, cudaStream_t);
void ternary_decode(DeviceSpan<const std::int8_t> sums, DeviceSpan<const float> scale, DeviceSpan<float> out,
                    cudaStream_t);
void ternary_decode(DeviceSpan<const std::int32_t> sums, DeviceSpan<const float> scale, DeviceSpan<float> out,
                    cudaStream_t);

}  // namespace gradmeter::compression::cuda
