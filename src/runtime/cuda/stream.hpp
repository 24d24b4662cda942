// SPDX-License-Identifier: Apache-2.0
// The stream into which work of a GPU's queue puts its kernels.
#pragma once
#include <cuda_runtime_api.h>

namespace gradmeter::gpu {

/// The queue's stream, within work of a CudaQueue on the thread that submits it. Writes of the same work's host code to
/// the device's memory are first copied there. Errors: std::logic_error outside such work.
cudaStream_t stream();

}  // namespace gradmeter::gpu
