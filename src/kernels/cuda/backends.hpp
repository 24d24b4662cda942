// SPDX-License-Identifier: Apache-2.0
// Adds the rows for GPUs to the tables of operations (op.hpp), kernel cases (kernel_case.hpp) and loops (loops.hpp).
#pragma once

namespace gradmeter::kernels {

/// Adds the rows of device "cuda" in the order of preference: those of the libraries in the build, "own", and "host"
/// for operations for which we have no kernel. Also adds the GPU's cases of operations that are no Op
/// (kernel_case.hpp), and its loops (loops.hpp). Any thread may call it, and repeatedly, but the first call must come
/// before any prepare().
void add_cuda_ops();

}  // namespace gradmeter::kernels

namespace gradmeter::kernels::cuda {

// The loops of a training step on a GPU.

/// Call it once, before threads begin. From then on, loops() launches kernels within work of a GPU's queue, if the
/// buffers are on the GPU. Losses, exponentials and layer norms have other bits than the host's
/// (kernels/pointwise/gpu_kernels.hpp, kernels/attention/gpu_kernels.hpp); all else has the same bits.
void add_cuda_loops();

}  // namespace gradmeter::kernels::cuda
