// Where work of a GPU's queue puts its kernels.
#pragma once
#include <cuda_runtime_api.h>

namespace gradmeter::gpu {

/// Within work of a CudaQueue, on the thread that submits it: the queue's stream. What host code of the same work has
/// written to the device's memory is copied there first. Errors: std::logic_error outside such work.
cudaStream_t stream();

}  // namespace gradmeter::gpu
