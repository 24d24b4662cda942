// SPDX-License-Identifier: Apache-2.0
// The stream into which work of a GPU's queue puts its kernels.
#pragma once
#include <cuda_runtime_api.h>

#include <functional>

namespace gradmeter::gpu {

/// The queue's stream, for work of a CudaQueue on the thread that submits it. If host code of the same work has written
/// to the device's memory before, that is first copied there. Errors: std::logic_error outside such work.
cudaStream_t stream();

/// Calls `then` as soon as somebody waits for the queue next (its owner, or work that asks for memory of the host), on
/// that thread. It is for reading words that the stream has copied to pinned memory. A host function in the stream
/// would instead delay the kernels behind it. Errors: as `stream`.
void when_done(std::function<void()> then);

}  // namespace gradmeter::gpu
