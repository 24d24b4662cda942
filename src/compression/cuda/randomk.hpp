// The kernels of `randomk`: RandomK's functions on a GPU.
#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>

#include "compression/codec.hpp"
#include "runtime/device_memory.hpp"

namespace gradmeter::compression::cuda {

using runtime::DeviceSpan;

/// All are queued on the stream, with the host's bits. Errors: UsageError beyond 2^32 elements; std::invalid_argument
/// when lengths differ; BackendError when a launch fails.

/// places [k], ascending, of [0, n).
void draw_places(const Draw&, std::size_t n, DeviceSpan<std::uint32_t> places, cudaStream_t);
/// values[j] = factor·x[places[j]].
void gather(DeviceSpan<const float> x, DeviceSpan<const std::uint32_t> places, float factor, DeviceSpan<float> values,
            cudaStream_t);
/// out = 0 but for out[places[j]] = values[j]. Places beyond `out` are left out.
void scatter(DeviceSpan<const float> values, DeviceSpan<const std::uint32_t> places, DeviceSpan<float> out,
             cudaStream_t);
/// x[places[j]] = 0.
void clear_sent(DeviceSpan<const std::uint32_t> places, DeviceSpan<float> x, cudaStream_t);

}  // namespace gradmeter::compression::cuda
