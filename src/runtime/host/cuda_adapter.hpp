// CUDA found, never required: what there is to use, or why there is nothing.
#pragma once
#include <cstddef>
#include <string>
#include <vector>

namespace gradmeter::runtime {

struct GpuFacts {
  std::string name;
  std::size_t memory_bytes = 0;
  int compute_major = 0, compute_minor = 0;
};

struct CudaFacts {
  bool built = false;   ///< was this program built with CUDA?
  std::string version;  ///< of the runtime library, "13.0"; empty when not built
  std::string problem;  ///< one line: why no GPU can be used, and what to do; empty when one can
  std::vector<GpuFacts> gpus;
};

/// Makes no context on any device. Errors: none; a missing driver or device is a `problem`.
/// Cost: up to a second at the first call where there is a driver.
CudaFacts read_cuda();

/// For `machine_fingerprint` and the run's record: "4 x NVIDIA H100, 2 x NVIDIA A100"; empty without GPUs.
std::string accelerator_names(const CudaFacts& cuda);

}  // namespace gradmeter::runtime
