// Softmax cross-entropy on a GPU.
#pragma once
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "kernels/pointwise.hpp"
#include "runtime/device_memory.hpp"

namespace gradmeter::kernels::cuda {

using runtime::DeviceSpan;

/// 16 bytes a row.
std::size_t cross_entropy_workspace(std::size_t rows);

/// As kernels::softmax_cross_entropy; `total` [1] is in device memory when the stream got there. `correct` is exact.
/// Losses and gradients are not the host's bits, whose exponentials are others: a row's sum is off by 2^-21 of itself
/// at most, a gradient by 2^-21·loss_scale/rows. A label outside the classes makes the loss NaN, since a kernel cannot
/// throw. Shape:  logits [rows × classes], labels [rows], gradient [rows × classes] or empty; a workspace of
///         cross_entropy_workspace(rows) bytes at a multiple of 8; loss_scale [1], or empty for 1.
/// Errors: std::invalid_argument when a length differs; BackendError when a launch fails.
void softmax_cross_entropy(DeviceSpan<const float> logits, DeviceSpan<const std::int32_t> labels, std::size_t classes,
                           DeviceSpan<const float> loss_scale, DeviceSpan<float> gradient,
                           DeviceSpan<CrossEntropy> total, DeviceSpan<std::byte> workspace, cudaStream_t);

}  // namespace gradmeter::kernels::cuda
