// The loops of a training step on a GPU.
#pragma once

namespace gradmeter::kernels::cuda {

/// Once, before threads begin: work of a GPU's queues then launches kernels where its buffers are the GPU's. Losses,
/// exponentials and layer norms are not the host's bits (kernels/cuda/loops/loss.hpp, transformer.hpp); all else is.
void add_cuda_loops();

}  // namespace gradmeter::kernels::cuda
