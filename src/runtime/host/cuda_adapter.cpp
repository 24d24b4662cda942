#include "runtime/host/cuda_adapter.hpp"

#include <algorithm>
#include <cstdlib>

#include "core/format.hpp"
#include "core/units.hpp"
#include "runtime/cuda/device_choice.hpp"

#ifdef GRADMETER_HAS_CUDA
#include <cuda_runtime_api.h>
#endif

namespace gradmeter::runtime {

#ifdef GRADMETER_HAS_CUDA
namespace {
std::string version_text(int version) { return fmt::format("{}.{}", version / 1000, version % 1000 / 10); }

std::string error_text(const char* call, cudaError_t error) {
  cudaGetLastError();  // the runtime remembers: the next checked call must not report this one
  return fmt::format("{}: {}", call, cudaGetErrorString(error));
}

/// The driver's own version tells a missing driver from one that is too old.
std::string count_problem(cudaError_t error, const CudaFacts& facts) {
  const std::string reason = error_text("cudaGetDeviceCount", error);
  if (error == cudaErrorNoDevice) {
    return no_device_reason([](const char* name) -> const char* { return std::getenv(name); });
  }
  if (error != cudaErrorInsufficientDriver) return reason + ": use --device cpu";
  if (facts.driver.empty()) return fmt::format("no CUDA driver on this machine ({}): use --device cpu", reason);
  return fmt::format("the CUDA driver is for {} and the program for {} ({}): update the driver or use --device cpu",
                     facts.driver, facts.version, reason);
}

/// Empty where there is none: a missing driver has version 0.
std::string driver_version() {
  int version = 0;
  return cudaDriverGetVersion(&version) == cudaSuccess && version > 0 ? version_text(version) : std::string();
}

std::string uuid_text(const cudaUUID_t& uuid) {
  std::string text;
  for (const char byte : uuid.bytes) text += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  return text;
}

GpuFacts gpu_facts(const cudaDeviceProp& p) {
  return {.name = p.name,
          .memory_bytes = p.totalGlobalMem,
          .compute_major = p.major,
          .compute_minor = p.minor,
          .uuid = uuid_text(p.uuid),
          .bus_id = fmt::format("{:04x}:{:02x}:{:02x}.0", p.pciDomainID, p.pciBusID, p.pciDeviceID)};
}
}  // namespace

CudaFacts read_cuda() {
  CudaFacts facts;
  facts.built = true;
  int version = 0;
  if (cudaRuntimeGetVersion(&version) == cudaSuccess) facts.version = version_text(version);
  facts.driver = driver_version();
  int devices = 0;
  if (const cudaError_t error = cudaGetDeviceCount(&devices); error != cudaSuccess) {
    facts.problem = count_problem(error, facts);
    return facts;
  }
  for (int device = 0; device < devices; ++device) {
    cudaDeviceProp properties{};
    if (const cudaError_t error = cudaGetDeviceProperties(&properties, device); error != cudaSuccess) {
      facts.problem = fmt::format("GPU {}: {}", device, error_text("cudaGetDeviceProperties", error));
      continue;
    }
    facts.gpus.push_back(gpu_facts(properties));
  }
  if (facts.gpus.empty() && facts.problem.empty()) facts.problem = "CUDA shows no GPU: use --device cpu";
  return facts;
}
#else
CudaFacts read_cuda() {
  CudaFacts facts;
  facts.problem = "built without CUDA: configure with -DGRADMETER_CUDA=ON, or use --device cpu";
  return facts;
}
#endif

std::string describe(const GpuFacts& gpu) {
  return fmt::format("{}, sm_{}{}, {}, PCI {}", gpu.name, gpu.compute_major, gpu.compute_minor,
                     core::to_text(core::Bytes{gpu.memory_bytes}), gpu.bus_id);
}

std::string accelerator_names(const CudaFacts& cuda) {
  std::vector<std::string> names;
  for (const GpuFacts& gpu : cuda.gpus) names.push_back(gpu.name);
  std::ranges::sort(names);
  std::string text;
  for (auto first = names.begin(); first != names.end();) {
    const auto end = std::upper_bound(first, names.end(), *first);
    text += fmt::format("{}{} x {}", text.empty() ? "" : ", ", end - first, *first);
    first = end;
  }
  return text;
}

}  // namespace gradmeter::runtime
