// The rows of op_backends() (op.hpp) that GPUs have.
#pragma once
#include <map>
#include <string>

namespace gradmeter::kernels {

/// Adds the rows of device "cuda": those of the libraries that the build has, then "host" for what these have not.
/// Once, before threads begin.
void add_cuda_library_ops();

/// {"cuBLASLt": "13.1.0", "cuDNN": "9.19.0"}: of those that the build has, as they are loaded.
std::map<std::string, std::string> cuda_library_versions();

}  // namespace gradmeter::kernels
