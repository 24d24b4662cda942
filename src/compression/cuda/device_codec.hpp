// The interface of a codec on a GPU: a Codec's bytes for the same floats and draws, made where the gradient is.
#pragma once
#include <cuda_runtime_api.h>

#include <cstddef>
#include <span>

#include "compression/codec.hpp"
#include "runtime/device_memory.hpp"

namespace gradmeter::compression::cuda {

using runtime::DeviceSpan;

/// Sums of more wires than this do not fit a kernel's parameters.
inline constexpr std::size_t most_wires = 256;

/// All work is queued on the stream; memory must stay until the stream got there. Wires begin at multiples of 16 bytes
/// and are as long as the Codec's. NaN stays NaN, but its bits in decoded numbers are the device's.
/// `workspace` [at least workspace_bytes(n), or what `reduce` asks, at a multiple of 256 bytes] is free again when the
/// stream got there; its content does not matter. One workspace serves one call at a time. Errors:
/// std::invalid_argument when a length or an address is wrong; BackendError when a launch fails.
class DeviceCodec {
 public:
  virtual ~DeviceCodec() = default;
  virtual std::size_t wire_bytes(std::size_t n) const = 0;
  virtual std::size_t workspace_bytes(std::size_t n) const = 0;
  virtual std::size_t reduce_workspace_bytes(std::size_t n) const { return workspace_bytes(n); }

  virtual void encode(DeviceSpan<const float> x, DeviceSpan<std::byte> wire, const Draw&,
                      DeviceSpan<std::byte> workspace, cudaStream_t) const = 0;
  /// out[i] = addend[i] + decoded[i], or decoded[i] where `addend` is empty. `addend` may be `out`.
  virtual void decode(DeviceSpan<const std::byte> wire, DeviceSpan<const float> addend, DeviceSpan<float> out,
                      DeviceSpan<std::byte> workspace, cudaStream_t) const = 0;
  /// Adds up encoded spans of n elements in fp32, in their order, and encodes the sum: what Reducer does. One wire at
  /// least, `most_wires` at most.
  virtual void reduce(std::span<const DeviceSpan<const std::byte>> wires, std::size_t n, DeviceSpan<std::byte> out,
                      const Draw&, DeviceSpan<std::byte> workspace, cudaStream_t) const = 0;
};

}  // namespace gradmeter::compression::cuda
