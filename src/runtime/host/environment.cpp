// SPDX-License-Identifier: Apache-2.0
#include "runtime/host/environment.hpp"

#include <gnu/libc-version.h>
#include <hwloc.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "core/format.hpp"
#include "runtime/host/kernel_files.hpp"

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

// Frameworks of Open MPI whose parameters change times. Those of orte, ess, pmix and shmem are left out: mpirun sets
// them for itself, anew at every launch.
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

std::map<std::string, std::string> recorded_environment(const char* const* block) {
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

namespace {
constexpr std::string_view open_mpi = "mpirun (Open MPI)", mpich = "mpiexec (MPICH)", intel = "mpiexec (Intel MPI)",
                           slurm = "srun", pmix = "PMIx";

std::string_view text_of(const ReadVariable& get_variable, const char* name) {
  const char* value = get_variable(name);
  return value ? std::string_view(value) : std::string_view();
}

std::optional<int> number_of(const ReadVariable& get_variable, const char* name) {
  return leading_number<int>(text_of(get_variable, name));
}

std::optional<Launcher> launcher_of(const ReadVariable& get_variable, std::string_view name, const char* rank_name,
                                    const char* size_name) {
  const auto rank = number_of(get_variable, rank_name), size = number_of(get_variable, size_name);
  if (!rank || !size || *rank < 0 || *size < 1) return std::nullopt;
  return Launcher{.name = std::string(name), .rank = *rank, .size = *size};
}

}  // namespace

bool in_slurm_step(const ReadVariable& get_variable) {
  // A batch script has SLURM_PROCID too, but its step has a special number, or none.
  constexpr std::uint32_t first_special_step = 0xfffffff0;  // Source: slurm.h, SLURM_MAX_NORMAL_STEP_ID
  const auto step = leading_number<std::uint32_t>(text_of(get_variable, "SLURM_STEP_ID"));
  return step && *step < first_special_step;
}

Launcher read_launcher(const ReadVariable& get_variable) {
  if (auto found = launcher_of(get_variable, open_mpi, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE")) return *found;
  const bool in_step = in_slurm_step(get_variable);
  const bool from_intel =
      !text_of(get_variable, "I_MPI_HYDRA_UUID").empty() || !text_of(get_variable, "I_MPI_MPIRUN").empty();
  const bool pmi_from_slurm = in_step && text_of(get_variable, "SLURM_MPI_TYPE").starts_with("pmi");
  const std::string_view pmi = pmi_from_slurm ? slurm : from_intel ? intel : mpich;
  if (auto found = launcher_of(get_variable, pmi, "PMI_RANK", "PMI_SIZE")) return *found;
  const auto pmix_rank = number_of(get_variable, "PMIX_RANK");
  if (pmix_rank && *pmix_rank >= 0 && !text_of(get_variable, "PMIX_NAMESPACE").starts_with("slurm.")) {
    return {.name = std::string(pmix), .rank = *pmix_rank, .size = *pmix_rank + 1};
  }
  if (in_step) {
    for (const char* const size : {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"}) {
      if (auto found = launcher_of(get_variable, slurm, "SLURM_PROCID", size)) return *found;
    }
  }
  return {};
}

Launcher read_launcher() {
  return read_launcher([](const char* name) -> const char* { return std::getenv(name); });
}

std::optional<std::string> separate_worlds_advice(const Launcher& launcher, int mpi_world_size) {
  if (launcher.size <= 1 || mpi_world_size != 1) return std::nullopt;
  std::string_view remedy =
      "this program was linked with another MPI library: use that library's own mpirun, or rebuild with this one's";
  if (launcher.name == slurm) {
    remedy =
        "the MPI library does not hear srun: use srun --mpi=pmix (srun --mpi=list shows what there is), or mpirun "
        "inside the allocation";
  }
  const std::string_view at_least = launcher.name == pmix ? "at least " : "";
  return fmt::format("{} started {}{} separate one-rank worlds instead of one world: {}", launcher.name, at_least,
                     launcher.size, remedy);
}

}  // namespace gradmeter::runtime
