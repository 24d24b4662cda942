// Weights kept in bf16, in fp32's memory, on a GPU: the rules of kernels/bf16_update.hpp over buffers.
#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/cuda/loops/update_gate.hpp"
#include "runtime/device_memory.hpp"

namespace gradmeter::kernels::cuda {

using runtime::DeviceSpan;

/// w becomes what bf16 has for `target`. Queued on the stream, with the host's bits. Errors: std::invalid_argument when
/// lengths differ; BackendError when a launch fails.

/// To nearest; target may be w. Cost: 8 bytes an element.
void bf16_nearest(DeviceSpan<const float> target, DeviceSpan<float> w, UpdateGate, cudaStream_t);
/// What rounding took is kept in `carry`. Cost: 20 bytes an element.
void bf16_kahan(DeviceSpan<float> w, DeviceSpan<const float> target, DeviceSpan<float> carry, UpdateGate, cudaStream_t);
/// Up with the probability of what would be cut; draws are those of the update's number. `place`: of w's first element
/// among all weights. Cost: 8 bytes an element; a Philox block for four.
void bf16_stochastic(DeviceSpan<float> w, DeviceSpan<const float> target, std::uint64_t place, UpdateGate,
                     cudaStream_t);

}  // namespace gradmeter::kernels::cuda
