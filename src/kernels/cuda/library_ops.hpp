// The rows of op_backends() (op.hpp) that GPUs have.
#pragma once

namespace gradmeter::kernels {

/// Adds the rows of device "cuda": those of the libraries that the build has, then "host" for what these have not.
/// Once, before threads begin.
void add_cuda_library_ops();

}  // namespace gradmeter::kernels
