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

}  // namespace gradmeter::compression::cuda
