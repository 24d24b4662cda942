// The libraries around a GPU: which are here, in which version, and what is missing without the others.
#pragma once
#include <map>
#include <string>
#include <vector>

namespace gradmeter::runtime {

struct GpuLibrary {
  std::string name;
  std::string version{};     ///< of the library that this program runs with, not of its header; empty: it is not there
  std::string needed_for{};  ///< as it goes on "needed for ..."
  std::string remedy{};      ///< what to do where it is not there
  std::string absence = "not built in";
};

/// CUDA's runtime and driver, NCCL, cuBLASLt, cuDNN, cuSPARSE, cuSPARSELt, MPI's own way with device memory, and NVML.
/// Whether a library is there is asked of the running process: of those linked or loaded, and of NVML by loading it.
/// Cost: some milliseconds; up to a second at the first call where there is a driver. Errors: none.
std::vector<GpuLibrary> gpu_libraries();

/// One line without its name: the version, or "not built in: needed for ...; ...".
std::string availability(const GpuLibrary& library);

/// For a run's record: those that are there, by name.
std::map<std::string, std::string> gpu_library_versions();

}  // namespace gradmeter::runtime
