// The rows of op_backends() (op.hpp) that GPUs have.
#pragma once

namespace gradmeter::kernels {

/// Adds the rows of device "cuda" in the order of their choice: of the libraries that the build has, "own", and "host"
/// for what our own kernels have not. Any thread may call it again; before the first prepare() of any thread.
void add_cuda_ops();

}  // namespace gradmeter::kernels
