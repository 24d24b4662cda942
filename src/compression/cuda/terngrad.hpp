// The kernels of `terngrad`.
#pragma once
#include <cuda_runtime_api.h>

#include "compression/cuda/bucketed.hpp"

namespace gradmeter::compression::cuda {

/// A sum and a maximum for each 512 elements [bytes].
std::size_t terngrad_workspace(std::size_t n);

/// Queued on the stream; n is at least 1. The first is of a tensor, the second of the sum of wires. `workspace`
/// [terngrad_workspace(n)] is free again when the stream got there.
/// Cost: 8.25 bytes of device memory an element, of a sum of P wires (2P + 1)/4. Errors: BackendError.
void terngrad_encode(DeviceSpan<const float> x, double clip, const detail::Draws&, std::byte* wire,
                     std::byte* workspace, cudaStream_t);
void terngrad_reduce(const Wires&, std::size_t n, double clip, const detail::Draws&, std::byte* out,
                     std::byte* workspace, cudaStream_t);
void terngrad_decode(const std::byte* wire, const float* addend, DeviceSpan<float> out, cudaStream_t);

/// The parts of it for a sum of integers with one scale for all ranks, as in codecs/terngrad.hpp. `scale` [1] is in
/// device memory, where the largest of all ranks' is put between the first two. Errors: std::invalid_argument,
/// BackendError.
void ternary_scale(DeviceSpan<const float> x, double clip, DeviceSpan<float> scale, std::byte* workspace, cudaStream_t);
void ternary_quantise(DeviceSpan<const float> x, DeviceSpan<const float> scale, DeviceSpan<std::int8_t> codes,
                      const detail::Draws&, cudaStream_t);
void ternary_decode(DeviceSpan<const std::int8_t> sums, DeviceSpan<const float> scale, DeviceSpan<float> out,
                    cudaStream_t);
void ternary_decode(DeviceSpan<const std::int32_t> sums, DeviceSpan<const float> scale, DeviceSpan<float> out,
                    cudaStream_t);

}  // namespace gradmeter::compression::cuda
