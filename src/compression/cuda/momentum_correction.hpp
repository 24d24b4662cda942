// The kernels of `dgc` around `topk`'s: MomentumCorrection's functions on a GPU.
#pragma once
#include <cuda_runtime_api.h>

#include <cstddef>

#include "runtime/device_memory.hpp"

namespace gradmeter::compression::cuda {

using runtime::DeviceSpan;

/// u = momentum·u + factor·g; v = v + u, with the host's bits. Lengths are equal. Queued on the stream.
/// Cost: 12 bytes read and 8 written an element. Errors: std::invalid_argument, BackendError.
void accumulate(DeviceSpan<const float> g, float factor, float momentum, DeviceSpan<float> u, DeviceSpan<float> v,
                cudaStream_t);

/// A sum for each 512 elements, and their total [bytes].
std::size_t squares_workspace(std::size_t n);
/// The sum of squares of g, in the host's order (detail::sum_of_squares): the first double of the workspace
/// [squares_workspace(g.size()), at a multiple of 8 bytes] when the stream got there. Its root is l2_of_gradient.
/// Cost: one read of g. Errors: std::invalid_argument, BackendError.
void sum_of_squares(DeviceSpan<const float> g, DeviceSpan<std::byte> workspace, cudaStream_t);

}  // namespace gradmeter::compression::cuda
