// The rows of op_backends() (op.hpp) that GPUs have.
#pragma once

namespace gradmeter::kernels {

/// Adds the rows of device "cuda" of the libraries that the build has. Once, before threads begin.
void add_cuda_library_ops();

}  // namespace gradmeter::kernels
