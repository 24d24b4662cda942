// SPDX-License-Identifier: Apache-2.0
// The loops of transformer layers on a GPU: functions of kernels/attention/transformer.hpp.
#pragma once
#include <cuda_runtime_api.h>

#include <cstddef>

#include "runtime/device_memory.hpp"

namespace gradmeter::kernels::cuda {

using runtime::DeviceSpan;

/// All functions queue their work on the stream. Shapes and bytes moved are those of the host's functions. Exponentials
/// are CUDA's, within 2 units of the last place, so the bits differ from the host's. Errors: std::invalid_argument when
/// lengths differ; BackendError when a launch fails.

/// The error of y is at most 2^-20·(1 + |x|), that of the gradient 2^-19·(1 + |x|)·|delta|.
void gelu(DeviceSpan<const float> x, DeviceSpan<float> y, cudaStream_t);
void gelu_backward(DeviceSpan<const float> x, DeviceSpan<const float> delta, DeviceSpan<float> to, cudaStream_t);

/// A warp computes a row. Each lane sums a part of the row in float64, so the sums differ from the host's in their last
/// bits, and a result may differ by one unit in its last place.
void layer_norm(DeviceSpan<const float> x, DeviceSpan<const float> gain, DeviceSpan<const float> bias,
                DeviceSpan<float> y, cudaStream_t);
void layer_norm_backward(DeviceSpan<const float> x, DeviceSpan<const float> gain, DeviceSpan<const float> delta,
                         DeviceSpan<float> to, cudaStream_t);
/// layer_norm_backward_parameters adds up rows in the host's order. It needs a workspace of
/// layer_norm_workspace(rows, width) floats.
std::size_t layer_norm_workspace(std::size_t rows, std::size_t width);
void layer_norm_backward_parameters(DeviceSpan<const float> x, DeviceSpan<const float> delta, DeviceSpan<float> gain,
                                    DeviceSpan<float> bias, DeviceSpan<float> workspace, cudaStream_t);

/// A warp computes a row. The relative error of a probability p is at most 2^-20·(1 + |log p|), since the argument of
/// its exponential is rounded.
void causal_softmax(DeviceSpan<float> scores, std::size_t steps, float scale, cudaStream_t);
void causal_softmax_backward(DeviceSpan<const float> probabilities, DeviceSpan<float> gradient, std::size_t steps,
                             float scale, cudaStream_t);

}  // namespace gradmeter::kernels::cuda
