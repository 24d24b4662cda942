// SPDX-License-Identifier: Apache-2.0
// Adds what GPUs have to the tables of operations (op.hpp) and loops.
#pragma once

namespace gradmeter::kernels {

/// Adds the rows of device "cuda" in the order of preference: those of the libraries in the build, "own", and "host"
/// for operations for which we have no kernel. It also adds cases of other operations (kernel_case.hpp), and its loops
/// (loops.hpp). Any thread may call it again, but the first call must come before any prepare().
void add_cuda_ops();

}  // namespace gradmeter::kernels

namespace gradmeter::kernels::cuda {

// The loops of a training step on a GPU.

/// Call it once, before threads begin. Work of a GPU's queues then launches kernels where its buffers are on the GPU.
/// Losses, exponentials and layer norms have other bits than the host's (kernels/pointwise/gpu_kernels.hpp,
/// transformer.hpp); all else has the same bits.
void add_cuda_loops();

}  // namespace gradmeter::kernels::cuda
