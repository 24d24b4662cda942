// Loops of layers on a GPU that have no function of their own on the host: those of kernels/loops.hpp.
#pragma once
#include <cuda_runtime_api.h>

#include <cstddef>

#include "kernels/loops.hpp"
#include "runtime/device_memory.hpp"

namespace gradmeter::kernels::cuda {

using runtime::DeviceSpan;

/// All are queued on the stream and have the host's bits. Shapes and costs are the host's. Errors:
/// std::invalid_argument when lengths differ; BackendError when a launch fails.

void fill(DeviceSpan<float>, float value, cudaStream_t);
void add(DeviceSpan<const float> a, DeviceSpan<const float> b, DeviceSpan<float> to, cudaStream_t);
void add_and_scale(DeviceSpan<const float> a, DeviceSpan<const float> b, float factor, DeviceSpan<float> to,
                   cudaStream_t);
void add_row(DeviceSpan<const float> x, DeviceSpan<const float> row, bool is_relu, DeviceSpan<float> to, cudaStream_t);
void add_channels_and_relu(DeviceSpan<const float> bias, std::size_t pixels, DeviceSpan<float> images, cudaStream_t);
/// A thread to a channel, in the host's order.
void channel_sums(DeviceSpan<const float> images, std::size_t pixels, DeviceSpan<float> sums, cudaStream_t);
/// A number that is no word gives NaN.
void embed(DeviceSpan<const float> words, DeviceSpan<const float> table, std::size_t width, DeviceSpan<float> to,
           cudaStream_t);
/// A block to a row of the table, which looks at all words: cost words · rows reads, and the host's order of sums.
void embed_backward(DeviceSpan<const float> words, DeviceSpan<const float> delta, std::size_t width, bool clears,
                    DeviceSpan<float> table, cudaStream_t);
void swap_rows_and_columns(DeviceSpan<const float> from, std::size_t rows, std::size_t columns, std::size_t width,
                           DeviceSpan<float> to, cudaStream_t);
void reorder_heads(DeviceSpan<const float> from, const HeadLayout&, DeviceSpan<float> to, cudaStream_t);

}  // namespace gradmeter::kernels::cuda
