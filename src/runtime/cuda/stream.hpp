// SPDX-License-Identifier: Apache-2.0
// The stream into which work of a GPU's queue puts its kernels.
#pragma once
#include <cuda_runtime_api.h>

#include <functional>

namespace gradmeter::gpu {

/// The queue's stream, for work of a CudaQueue on the thread that submits it. What host code of the same work has
/// written to the device's memory is copied to the device first. Errors: std::logic_error outside such work.
cudaStream_t stream();

/// Calls `then` when the queue is next waited for (by its owner, or by work that asks for memory of the host), on the
/// waiting thread. It is for reading words that the stream has copied to pinned memory. A host function in the stream
/// would instead delay the kernels behind it. Errors: those of `stream`.
void when_done(std::function<void()> then);

}  // namespace gradmeter::gpu
