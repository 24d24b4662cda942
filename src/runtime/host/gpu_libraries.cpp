#include "runtime/host/gpu_libraries.hpp"

#include <dlfcn.h>

#include <array>
#include <cstddef>
#include <utility>

#include "core/format.hpp"
#include "runtime/cuda/nvml.hpp"
#include "runtime/host/cuda_adapter.hpp"
#include "runtime/mpi/cuda_aware.hpp"

namespace gradmeter::runtime {
namespace {

#ifdef GRADMETER_CUDA_EMULATED
constexpr const char* not_linked = "the tests' emulated one, or not built in";
#else
constexpr const char* not_linked = "not built in";
#endif

/// A function of a library that is linked with this program; null: none is. Plug-ins of MPI keep theirs to themselves.
template <class Function>
Function* linked(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_DEFAULT, name));
}

/// 90101 is 9.1.1. Source: cublas_api.h, cudnn_version.h and nccl.h of CUDA 12 and 13.
std::string dotted(std::size_t version) {
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

std::string nccl_version() {
  const auto get = linked<int(int*)>("ncclGetVersion");
  int version = 0;
  return get && get(&version) == 0 ? dotted(static_cast<std::size_t>(version)) : std::string();
}

std::string counted_version(const char* function) {
  const auto get = linked<std::size_t()>(function);
  return get ? dotted(get()) : std::string();
}

/// By a function such as cusparseGetProperty.
std::string property_version(const char* function) {
  const auto get = linked<int(int, int*)>(function);
  std::array<int, 3> parts{};
  for (int i = 0; i < 3; ++i) {  // MAJOR_VERSION, MINOR_VERSION, PATCH_LEVEL of library_types.h
    if (!get || get(i, &parts[static_cast<std::size_t>(i)]) != 0) return {};
  }
  return fmt::format("{}.{}.{}", parts[0], parts[1], parts[2]);
}

GpuLibrary linked_library(const char* name, std::string version, const char* needed_for,
                          const char* installation = "install its headers and library") {
  return {.name = name,
          .version = std::move(version),
          .needed_for = needed_for,
          .remedy = fmt::format("{}, and configure with -DGRADMETER_CUDA=ON", installation),
          .absence = not_linked};
}

GpuLibrary cuda_runtime() {
  const CudaFacts facts = read_cuda();
  GpuLibrary library{.name = "CUDA",
                     .version = facts.version,
                     .needed_for = "--device cuda",
                     .remedy = "install the toolkit and configure with -DGRADMETER_CUDA=ON"};
  if (!facts.driver.empty()) library.version += ", driver for " + facts.driver;
  return library;
}

GpuLibrary device_mpi() {
  GpuLibrary library{
      .name = "MPI on GPUs",
      .needed_for = "MPI's own messages and reductions of device memory",
      .remedy = "without, they pass through host memory; build Open MPI --with-cuda, or over a UCX with CUDA",
      .absence = "not CUDA-aware"};
  switch (cuda_aware_mpi()) {
    case CudaAwareMpi::yes:
      library.version = "CUDA-aware";
      break;
    case CudaAwareMpi::no:
      break;
    case CudaAwareMpi::unknown:
      library.absence = "it does not say whether it is CUDA-aware";
      break;
    case CudaAwareMpi::no_mpi:
      library.absence = "built without MPI";
      library.remedy = "install MPI and configure again";
      break;
  }
  return library;
}

GpuLibrary driver_nvml() {
  const Nvml loaded;
  return {.name = "NVML",
          .version = loaded.version(),
          .needed_for = "the clock, power and slowdowns of each measured block",
          .remedy = fmt::format("it comes with the driver ({})", loaded.problem()),
          .absence = "not there"};
}

}  // namespace

std::vector<GpuLibrary> gpu_libraries() {
  return {cuda_runtime(),
          linked_library("NCCL", nccl_version(), "the all-reduce nccl and messages between GPUs of several nodes"),
          linked_library("cuBLASLt", counted_version("cublasLtGetVersion"), "a library's matrix products on GPUs"),
          linked_library("cuDNN", counted_version("cudnnGetVersion"),
                         "a library's convolutions and recurrent layers on GPUs"),
          linked_library("cuSPARSE", property_version("cusparseGetProperty"), "a library's sparse products on GPUs"),
          linked_library("cuSPARSELt", property_version("cusparseLtGetProperty"), "sparse products in 2:4 on GPUs",
                         "run scripts/cusparselt.sh"),
          device_mpi(),
          driver_nvml()};
}

std::string availability(const GpuLibrary& library) {
  if (!library.version.empty()) return library.version;
  return fmt::format("{}: needed for {}; {}", library.absence, library.needed_for, library.remedy);
}

std::map<std::string, std::string> gpu_library_versions() {
  std::map<std::string, std::string> versions;
  for (const GpuLibrary& library : gpu_libraries()) {
    if (!library.version.empty()) versions.emplace(library.name, library.version);
  }
  return versions;
}

}  // namespace gradmeter::runtime
