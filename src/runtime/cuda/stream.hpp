// SPDX-License-Identifier: Apache-2.0
// The stream in which work of a GPU's queue launches kernels.
#pragma once
#include <cuda_runtime_api.h>

#include <functional>

namespace gradmeter::gpu {

/// Returns the stream of the CudaQueue whose work runs on this thread. If host code of the same work has written to a
/// buffer's copy in host memory, a copy of these bytes to the device is queued first. Errors: std::logic_error if no
/// such work runs on this thread.
cudaStream_t stream();

/// Calls `then` after the next wait for the queue's stream, on the thread that waits. The queue's owner waits in
/// `synchronise`, and work waits when its host code asks for the device's memory. Use it to read words that the stream
/// has copied to pinned memory: a host function in the stream could read them too, but it would delay the kernels
/// behind it. Errors: those of `stream`.
void when_done(std::function<void()> then);

}  // namespace gradmeter::gpu
