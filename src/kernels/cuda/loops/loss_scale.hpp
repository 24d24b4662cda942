// A loss' scale that adapts, on a GPU: found, obeyed and changed within the stream.
#pragma once
#include <cuda_runtime_api.h>

#include "kernels/update_number.hpp"
#include "runtime/device_memory.hpp"

namespace gradmeter::kernels::cuda {

using runtime::DeviceSpan;

/// All are queued on the stream, with the host's bits. scale [1], counts [1]. Errors: std::invalid_argument when a
/// length differs; BackendError when a launch fails.

/// gradients ×= 1/scale. Cost: 8 bytes an element.
void unscale(DeviceSpan<float> gradients, DeviceSpan<const float> scale, cudaStream_t);
/// Sets counts->skips where one of them is infinite or no number. Cost: 4 bytes an element.
void check_finite(DeviceSpan<const float> gradients, DeviceSpan<LossScaleCounts> counts, cudaStream_t);
/// kernels::end_step, by one thread.
void end_step(DeviceSpan<float> scale, DeviceSpan<LossScaleCounts> counts, std::int64_t grow, cudaStream_t);

}  // namespace gradmeter::kernels::cuda
