// SPDX-License-Identifier: Apache-2.0
// The rows of op_backends() (op.hpp) that GPUs have.
#pragma once

namespace gradmeter::kernels {

/// Adds the rows of device "cuda" in the order of preference: those of the libraries in the build, "own", and "host"
/// for operations without a kernel of ours; its cases of other operations (kernel_case.hpp); and its loops (loops.hpp).
/// Any thread may call it again, but the first call must come before any prepare().
void add_cuda_ops();

}  // namespace gradmeter::kernels

namespace gradmeter::kernels::cuda {

// The loops of a training step on a GPU.

/// Call it once, before threads begin: work of a GPU's queues then launches kernels where its buffers are on the GPU.
/// Losses, exponentials and layer norms differ from the host's bits (kernels/pointwise/gpu_kernels.hpp,
/// transformer.hpp); all else has them.
void add_cuda_loops();

}  // namespace gradmeter::kernels::cuda
