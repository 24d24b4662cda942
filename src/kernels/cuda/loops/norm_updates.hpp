// LARS and LAMB on a GPU: the functions of kernels/norm_updates.hpp, many tensors a launch.
#pragma once
#include <cuda_runtime_api.h>

#include <cstddef>
#include <span>

#include "kernels/cuda/loops/update_gate.hpp"
#include "kernels/norm_updates.hpp"
#include "runtime/device_memory.hpp"

namespace gradmeter::kernels::cuda {

using runtime::DeviceSpan;
using Pieces = std::span<const TensorPiece>;

/// All are queued on the stream and have the host's bits, in its order of sums. sums [pieces]. Errors:
/// std::invalid_argument when lengths differ or a piece lies outside; BackendError when a launch fails.

/// 16 bytes for each 4096 elements of a piece.
std::size_t norms_workspace(Pieces);

void lars_norms(DeviceSpan<const float> w, DeviceSpan<const float> g, Pieces, DeviceSpan<TwoSums> sums,
                DeviceSpan<TwoSums> workspace, cudaStream_t);
void lars(DeviceSpan<float> w, DeviceSpan<float> v, DeviceSpan<const float> g, Pieces, DeviceSpan<const TwoSums> sums,
          LarsParameters, UpdateGate, cudaStream_t);
void lamb_norms(DeviceSpan<const float> w, DeviceSpan<float> m, DeviceSpan<float> v, DeviceSpan<const float> g, Pieces,
                DeviceSpan<TwoSums> sums, DeviceSpan<TwoSums> workspace, LambParameters, UpdateGate, cudaStream_t);
void lamb(DeviceSpan<float> w, DeviceSpan<const float> m, DeviceSpan<const float> v, Pieces,
          DeviceSpan<const TwoSums> sums, LambParameters, UpdateGate, cudaStream_t);

}  // namespace gradmeter::kernels::cuda
