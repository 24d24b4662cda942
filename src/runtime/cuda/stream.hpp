// SPDX-License-Identifier: Apache-2.0
// The stream in which work of a GPU's queue launches kernels.
#pragma once
#include <cuda_runtime_api.h>

#include <functional>

namespace gradmeter::gpu {

/// Within work of a CudaQueue, on the thread that submits it: the queue's stream. If host code of the same work has
/// written to a buffer's copy in host memory, a copy of these bytes to the device is queued first. Errors:
/// std::logic_error outside such work.
cudaStream_t stream();

/// Calls `then` on the thread that next waits for the queue: the queue's owner, or work in which host code asks for the
/// device's memory. It is for reading words that the stream has copied to pinned memory. A host function in the stream
/// would instead delay the kernels behind it. Errors: those of `stream`.
void when_done(std::function<void()> then);

}  // namespace gradmeter::gpu
