#include "runtime/host/launcher.hpp"

#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "core/format.hpp"
#include "runtime/host/proc_files.hpp"

namespace gradmeter::runtime {

namespace {
constexpr std::string_view open_mpi = "mpirun (Open MPI)", mpich = "mpiexec (MPICH)", intel = "mpiexec (Intel MPI)",
                           slurm = "srun", pmix = "PMIx";

std::string_view text_of(const ReadVariable& variable, const char* name) {
  const char* value = variable(name);
  return value ? std::string_view(value) : std::string_view();
}

std::optional<int> number_of(const ReadVariable& variable, const char* name) {
  return leading_number<int>(text_of(variable, name));
}

std::optional<Launcher> launcher_of(const ReadVariable& variable, std::string_view name, const char* rank_name,
                                    const char* size_name) {
  const auto rank = number_of(variable, rank_name), size = number_of(variable, size_name);
  if (!rank || !size || *rank < 0 || *size < 1) return std::nullopt;
  return Launcher{.name = std::string(name), .rank = *rank, .size = *size};
}

}  // namespace

bool in_slurm_step(const ReadVariable& variable) {
  // A batch script has SLURM_PROCID too, but its step has a number beyond the normal ones or none.
  constexpr std::uint32_t first_special_step = 0xfffffff0;  // Source: slurm.h, SLURM_MAX_NORMAL_STEP_ID
  const auto step = leading_number<std::uint32_t>(text_of(variable, "SLURM_STEP_ID"));
  return step && *step < first_special_step;
}

Launcher read_launcher(const ReadVariable& variable) {
  if (auto found = launcher_of(variable, open_mpi, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE")) return *found;
  const bool step = in_slurm_step(variable);
  const bool from_intel = !text_of(variable, "I_MPI_HYDRA_UUID").empty() || !text_of(variable, "I_MPI_MPIRUN").empty();
  const bool pmi_from_slurm = step && text_of(variable, "SLURM_MPI_TYPE").starts_with("pmi");
  const std::string_view pmi = pmi_from_slurm ? slurm : from_intel ? intel : mpich;
  if (auto found = launcher_of(variable, pmi, "PMI_RANK", "PMI_SIZE")) return *found;
  const auto pmix_rank = number_of(variable, "PMIX_RANK");
  if (pmix_rank && *pmix_rank >= 0 && !text_of(variable, "PMIX_NAMESPACE").starts_with("slurm.")) {
    return {.name = std::string(pmix), .rank = *pmix_rank, .size = *pmix_rank + 1};
  }
  if (step) {
    for (const char* const size : {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"}) {
      if (auto found = launcher_of(variable, slurm, "SLURM_PROCID", size)) return *found;
    }
  }
  return {};
}

Launcher read_launcher() {
  return read_launcher([](const char* name) -> const char* { return std::getenv(name); });
}

std::optional<std::string> separate_worlds(const Launcher& launcher, int mpi_world_size) {
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
