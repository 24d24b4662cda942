// SPDX-License-Identifier: Apache-2.0
// The stream into which work of a GPU's queue puts its kernels.
#pragma once
#include <cuda_runtime_api.h>

#include <functional>

namespace gradmeter::gpu {

/// The queue's stream, within work of a CudaQueue on the thread that submits it. Writes of the same work's host code to
/// the device's memory are first copied there. Errors: std::logic_error outside such work.
cudaStream_t stream();

/// Calls `then` when the queue has next been waited for, by its owner or by work that asks for memory of the host, on
/// the thread that waits: to take words that the stream copies to pinned memory. A host function of the stream would
/// hold up the kernels behind it. Errors: as `stream`.
void when_done(std::function<void()> then);

}  // namespace gradmeter::gpu
