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
  std::string
      uuid{};  ///< 32 hexadecimal digits: tells devices apart also where ranks see others, or parts of one (MIG)
  std::string bus_id{};  ///< of PCI, "0000:65:00.0": NVML's and the kernel's name for it
};

struct CudaFacts {
  bool built = false;   ///< was this program built with CUDA?
  std::string version;  ///< of the runtime library, "13.0"; empty when not built
  std::string driver;   ///< the newest runtime that the driver serves, "13.0"; empty without a driver
  std::string problem;  ///< one line: why no GPU can be used, and what to do; empty when one can
  std::vector<GpuFacts> gpus;
};

/// Makes no context on any device. Errors: none; a missing driver or device is a `problem`.
/// Cost: up to a second at the first call where there is a driver.
CudaFacts read_cuda();

/// "NVIDIA H100 80GB HBM3, sm_90, 79.1 GiB, PCI 0000:65:00.0".
std::string describe(const GpuFacts& gpu);

/// For `machine_fingerprint` and the run's record: "4 x NVIDIA H100, 2 x NVIDIA A100"; empty without GPUs.
std::string accelerator_names(const CudaFacts& cuda);

}  // namespace gradmeter::runtime
