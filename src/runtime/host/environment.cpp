#include "runtime/host/environment.hpp"

#include <gnu/libc-version.h>
#include <hwloc.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "core/format.hpp"

namespace gradmeter::runtime {

namespace {
constexpr auto recorded_names = std::to_array<std::string_view>(
    {// threads and where they run
     "OMP_NUM_THREADS", "OMP_PROC_BIND", "OMP_PLACES", "OMP_WAIT_POLICY", "OMP_DYNAMIC", "OMP_SCHEDULE",
     "GOMP_CPU_AFFINITY", "GOMP_SPINCOUNT", "KMP_AFFINITY", "KMP_BLOCKTIME",
     // kernels
     "ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA", "ONEDNN_DEFAULT_FPMATH_MODE", "DNNL_DEFAULT_FPMATH_MODE",
     "NVIDIA_TF32_OVERRIDE", "CUBLAS_WORKSPACE_CONFIG",
     // devices
     "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "CUDA_DEVICE_MAX_CONNECTIONS", "CUDA_LAUNCH_BLOCKING",
     "CUDA_MODULE_LOADING", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE",
     // memory
     "GLIBC_TUNABLES", "MALLOC_ARENA_MAX", "MALLOC_TRIM_THRESHOLD_", "LD_PRELOAD",
     // the wire below MPI
     "UCX_TLS", "UCX_NET_DEVICES", "UCX_RNDV_THRESH", "UCX_MAX_RNDV_RAILS", "FI_PROVIDER", "PSM2_MULTIRAIL",
     "GLOO_SOCKET_IFNAME",
     // other MPI libraries
     "I_MPI_FABRICS", "I_MPI_PIN", "I_MPI_PIN_DOMAIN", "I_MPI_ADJUST_ALLREDUCE", "MPICH_GPU_SUPPORT_ENABLED",
     "MPICH_ASYNC_PROGRESS",
     // the batch system
     "SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_JOB_PARTITION", "SLURM_NTASKS", "SLURM_NNODES", "SLURM_CPUS_PER_TASK",
     "SLURM_TASKS_PER_NODE", "SLURM_DISTRIBUTION", "SLURM_CPU_BIND", "SLURM_MPI_TYPE", "SLURM_GPUS_PER_TASK"});

// Frameworks whose parameters tune; orte, ess, pmix and shmem ones are mpirun's own and change at every launch.
constexpr auto recorded_prefixes = std::to_array<std::string_view>(
    {"OMPI_MCA_btl", "OMPI_MCA_pml", "OMPI_MCA_mtl", "OMPI_MCA_bml", "OMPI_MCA_osc", "OMPI_MCA_coll", "OMPI_MCA_op",
     "OMPI_MCA_mpi_", "OMPI_MCA_opal_", "OMPI_MCA_hwloc_", "OMPI_MCA_rmaps", "OMPI_MCA_topo", "OMPI_MCA_mpool",
     "OMPI_MCA_rcache", "NCCL_"});

constexpr auto secret_marks =
    std::to_array<std::string_view>({"KEY", "TOKEN", "SECRET", "PASS", "CRED", "AUTH", "COOKIE"});

bool looks_secret(std::string_view name) {
  std::string upper(name);
  std::ranges::transform(upper, upper.begin(), [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return std::ranges::any_of(secret_marks,
                             [&](std::string_view mark) { return upper.find(mark) != std::string::npos; });
}

std::string compiler() {
#if defined(__clang__)
  return "Clang " __clang_version__;
#elif defined(__GNUC__)
  return "GCC " __VERSION__;
#else
  return "unknown";
#endif
}
}  // namespace

bool is_recorded_variable(std::string_view name) {
  if (looks_secret(name)) return false;
  return std::ranges::find(recorded_names, name) != recorded_names.end() ||
         std::ranges::any_of(recorded_prefixes, [&](std::string_view prefix) { return name.starts_with(prefix); });
}

std::map<std::string, std::string> named_environment(const char* const* block) {
  if (!block) block = environ;
  std::map<std::string, std::string> found;
  for (; block && *block; ++block) {
    const std::string_view entry = *block;
    const std::size_t equals = entry.find('=');
    if (equals == std::string_view::npos || !is_recorded_variable(entry.substr(0, equals))) continue;
    found.emplace(entry.substr(0, equals), entry.substr(equals + 1));
  }
  return found;
}

std::map<std::string, std::string> library_versions() {
  return {{"hwloc", HWLOC_VERSION}, {"glibc", gnu_get_libc_version()}, {"compiler", compiler()}};
}

}  // namespace gradmeter::runtime
