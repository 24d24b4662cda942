// SPDX-License-Identifier: Apache-2.0
#include "runtime/host/gpus.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <numeric>
#include <string_view>
#include <system_error>
#include <utility>

#include "core/format.hpp"
#include "core/units.hpp"
#include "runtime/cuda/nvml.hpp"
#include "runtime/mpi/session.hpp"

#ifdef GRADMETER_HAS_CUDA
#include <cuda_runtime_api.h>

#include "runtime/cuda/device.hpp"
#endif

namespace gradmeter::runtime {

#ifdef GRADMETER_HAS_CUDA
namespace {
std::string version_text(int version) { return fmt::format("{}.{}", version / 1000, version % 1000 / 10); }

std::string error_text(const char* call, cudaError_t error) {
  cudaGetLastError();  // clears the error, which the next checked call would report again
  return fmt::format("{}: {}", call, cudaGetErrorString(error));
}

/// The reason why CUDA counts no devices; the driver's version tells a missing driver from one that is too old.
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

/// The driver's version; empty without one: a missing driver has version 0.
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

void set_cuda_defaults() {
  constexpr int overwrite = 0;  // the user's values stay
  setenv("CUDA_MODULE_LOADING", "EAGER", overwrite);
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", overwrite);
}

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
std::string lost_gpu() {
  const int gpu = selected_gpu();
  if (gpu < 0) return {};
  cudaGetLastError();  // clears an error that was reported already
  std::size_t free = 0, total = 0;
  cudaError_t state = cudaMemGetInfo(&free, &total);
  // Asks the default stream, which this program does not use: its query reports a kernel that has failed since.
  if (state == cudaSuccess) state = cudaStreamQuery(nullptr);
  if (state == cudaSuccess || state == cudaErrorNotReady) return {};
  cudaGetLastError();
  const std::string recent = recent_gpu_work();
  return fmt::format("GPU {} answers no call any more ({}){}", gpu, cudaGetErrorString(state),
                     recent.empty() ? "" : "; this thread gave it last: " + recent);
}
#else
std::string lost_gpu() { return {}; }
void set_cuda_defaults() {}

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

namespace {

#ifdef GRADMETER_CUDA_EMULATED
constexpr const char* not_linked = "the tests' emulated one, or not built in";
#else
constexpr const char* not_linked = "not built in";
#endif

/// A function of a library that is linked with this program; null: there is none. It does not find libraries that
/// plug-ins of MPI have loaded for themselves.
template <class Function>
Function* linked(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_DEFAULT, name));
}

/// 90101 is 9.1.1. Source: cublas_api.h, cudnn_version.h and nccl.h of CUDA 12 and 13.
std::string dotted(std::size_t version) {
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

/// The file of the library that has this function; empty: no such library is linked, or it is linked into the program
/// itself.
std::string library_file(const char* function) {
  Dl_info from{}, program{};
  void* const address = dlsym(RTLD_DEFAULT, function);
  if (!address || dladdr(address, &from) == 0 || !from.dli_fname) return {};
  if (dladdr(reinterpret_cast<void*>(&library_file), &program) != 0 && program.dli_fbase == from.dli_fbase) return {};
  std::error_code error;
  const auto path = std::filesystem::canonical(from.dli_fname, error);
  return error ? from.dli_fname : path.string();
}

std::string nccl_version() {
  const auto get = linked<int(int*)>("ncclGetVersion");
  int version = 0;
  return get && get(&version) == 0 ? dotted(static_cast<std::size_t>(version)) : std::string();
}

std::string numeric_version(const char* function) {
  const auto get = linked<std::size_t()>(function);
  return get ? dotted(get()) : std::string();
}

/// The version that a function such as cusparseGetProperty gives.
std::string property_version(const char* function) {
  const auto get = linked<int(int, int*)>(function);
  std::array<int, 3> parts{};
  for (int i = 0; i < 3; ++i) {  // MAJOR_VERSION, MINOR_VERSION, PATCH_LEVEL of library_types.h
    if (!get || get(i, &parts[static_cast<std::size_t>(i)]) != 0) return {};
  }
  return fmt::format("{}.{}.{}", parts[0], parts[1], parts[2]);
}

/// `function`: the library's function that gives its version.
GpuLibrary linked_library(const char* name, std::string version, const char* function, const char* needed_for,
                          const char* installation = "install its headers and library") {
  return {.name = name,
          .version = std::move(version),
          .needed_for = needed_for,
          .remedy = fmt::format("{}, and configure with -DGRADMETER_CUDA=ON", installation),
          .absence_reason = not_linked,
          .place = library_file(function)};
}

GpuLibrary cuda_runtime() {
  const CudaFacts facts = read_cuda();
  GpuLibrary library{.name = "CUDA",
                     .version = facts.version,
                     .needed_for = "--device cuda",
                     .remedy = "install the toolkit and configure with -DGRADMETER_CUDA=ON",
                     .place = library_file("cudaRuntimeGetVersion")};
  if (!facts.driver.empty()) library.version += ", driver for " + facts.driver;
  return library;
}

GpuLibrary device_mpi() {
  GpuLibrary library{
      .name = "MPI on GPUs",
      .needed_for = "MPI's own messages and reductions of device memory",
      .remedy = "without, they pass through host memory; build Open MPI --with-cuda, or over a UCX with CUDA",
      .absence_reason = "not CUDA-aware"};
  switch (cuda_aware_mpi()) {
    case CudaAwareMpi::yes:
      library.version = "CUDA-aware";
      break;
    case CudaAwareMpi::no:
      break;
    case CudaAwareMpi::unknown:
      library.absence_reason = "it does not say whether it is CUDA-aware";
      break;
    case CudaAwareMpi::no_mpi:
      library.absence_reason = "built without MPI";
      library.remedy = "install MPI and configure again";
      break;
  }
  return library;
}

GpuLibrary driver_nvml() {
  const GpuGauge gauge("");  // loads the library, for no GPU
  return {.name = "NVML",
          .version = gauge.version(),
          .needed_for = "the clock, power and slowdowns of each measured block",
          .remedy = fmt::format("it comes with the driver ({})", gauge.problem()),
          .absence_reason = "not there"};
}

}  // namespace

std::vector<GpuLibrary> gpu_libraries() {
  return {cuda_runtime(),
          linked_library("NCCL", nccl_version(), "ncclGetVersion",
                         "the all-reduce nccl and messages between GPUs of several nodes"),
          linked_library("cuBLASLt", numeric_version("cublasLtGetVersion"), "cublasLtGetVersion",
                         "a library's matrix products on GPUs"),
          linked_library("cuDNN", numeric_version("cudnnGetVersion"), "cudnnGetVersion",
                         "a library's convolutions and recurrent layers on GPUs"),
          linked_library("cuSPARSE", property_version("cusparseGetProperty"), "cusparseGetProperty",
                         "a library's sparse products on GPUs"),
          linked_library("cuSPARSELt", property_version("cusparseLtGetProperty"), "cusparseLtGetProperty",
                         "sparse products in 2:4 on GPUs", "run scripts/cusparselt.sh"),
          device_mpi(),
          driver_nvml()};
}

std::string availability(const GpuLibrary& library) {
  if (!library.version.empty()) {
    return library.place.empty() ? library.version : fmt::format("{}  ({})", library.version, library.place);
  }
  return fmt::format("{}: needed for {}; {}", library.absence_reason, library.needed_for, library.remedy);
}

std::map<std::string, std::string> gpu_library_versions() {
  std::map<std::string, std::string> versions;
  for (const GpuLibrary& library : gpu_libraries()) {
    if (!library.version.empty()) versions.emplace(library.name, library.version);
  }
  return versions;
}

namespace {

std::map<std::string, int> ranks_by_device(std::span<const std::string> devices) {
  std::map<std::string, int> count;
  for (const std::string& id : devices) ++count[id];
  return count;
}

}  // namespace

std::vector<std::optional<int>> choose_devices(std::span<const VisibleDevices> ranks_of_a_node) {
  std::vector<std::optional<int>> chosen(ranks_of_a_node.size());
  std::vector<std::size_t> order(ranks_of_a_node.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, {}, [&](std::size_t rank) { return ranks_of_a_node[rank].size(); });
  std::map<std::string, int> rank_counts;
  for (const std::size_t rank : order) {
    const VisibleDevices& visible = ranks_of_a_node[rank];
    const auto fewest = std::ranges::min_element(visible, {}, [&](const std::string& id) { return rank_counts[id]; });
    if (fewest == visible.end()) continue;
    ++rank_counts[*fewest];
    chosen[rank] = static_cast<int>(fewest - visible.begin());
  }
  return chosen;
}

int most_ranks_on_a_device(std::span<const std::string> devices) {
  int most = 0;
  for (const auto& [device, count] : ranks_by_device(devices)) most = std::max(most, count);
  return most;
}

std::string shared_devices_note(std::span<const std::string> devices) {
  const int most = most_ranks_on_a_device(devices);
  if (most <= 1) return {};
  const std::size_t count = ranks_by_device(devices).size();
  return fmt::format(
      "{} ranks share {} GPU{}, up to {} a GPU: they take turns, so times and efficiencies say nothing of scaling",
      devices.size(), count, count == 1 ? "" : "s", most);
}

std::string no_device_reason(const ReadVariable& get_variable) {
  const char* slurm = in_slurm_step(get_variable) ? "ask Slurm for GPUs (--gpus-per-task=1), or " : "";
  const char* visible = get_variable("CUDA_VISIBLE_DEVICES");
  if (!visible) return fmt::format("no GPU is visible to this rank: {}use --device cpu", slurm);
  return fmt::format(
      "CUDA_VISIBLE_DEVICES='{}' leaves this rank no GPU: unset it, name GPUs that nvidia-smi -L lists, or {}use "
      "--device cpu",
      visible, slurm);
}

}  // namespace gradmeter::runtime
