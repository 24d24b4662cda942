// Training in logarithms on a GPU: updates of weights kept in the system (kernels/lns/update.hpp) and its softmax
// cross-entropy (kernels/lns/softmax.hpp).
#pragma once
#include <cuda_runtime_api.h>

#include "kernels/cuda/loops/update_gate.hpp"
#include "kernels/cuda/own/lns_tables.hpp"
#include "kernels/lns/update.hpp"
#include "kernels/pointwise.hpp"

namespace gradmeter::kernels::cuda {

using runtime::DeviceSpan;

/// All are queued on the stream and have the host's bits. carry: empty without Kahan's sum. Errors:
/// std::invalid_argument when lengths differ; BackendError when a launch fails.

void lns_round(const DeviceLnsTables&, DeviceSpan<float> w, cudaStream_t);
void lns_add(const DeviceLnsTables&, DeviceSpan<float> w, DeviceSpan<const float> target, DeviceSpan<float> carry,
             UpdateGate, cudaStream_t);
void lns_descend(const DeviceLnsTables&, DeviceSpan<float> w, DeviceSpan<const float> g, float size,
                 DeviceSpan<float> carry, UpdateGate, cudaStream_t);

/// For each class of a row 2 bytes, and 16 for the row.
std::size_t lns_cross_entropy_workspace(std::size_t rows, std::size_t classes);
/// As loss.hpp's softmax_cross_entropy, in the order of the host's sums: a thread to a row.
void lns_softmax_cross_entropy(const DeviceLnsTables&, DeviceSpan<const float> logits,
                               DeviceSpan<const std::int32_t> labels, std::size_t classes,
                               DeviceSpan<const float> loss_scale, DeviceSpan<float> gradient,
                               DeviceSpan<CrossEntropy> total, DeviceSpan<std::byte> workspace, cudaStream_t);

}  // namespace gradmeter::kernels::cuda
