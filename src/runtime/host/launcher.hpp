// What started this process, told from the environment alone: before MPI is there, and when MPI does not hear it.
#pragma once
#include <functional>
#include <optional>
#include <string>

namespace gradmeter::runtime {

struct Launcher {
  std::string name;  ///< "mpirun (Open MPI)", "mpiexec (MPICH)", "srun", "PMIx"; empty: nothing started us but a shell
  int rank = 0;
  int size = 1;  ///< ranks it started; PMIx alone names no size: then a lower bound, rank + 1
};

/// Reads a variable as getenv does: null where it is not set.
using ReadVariable = std::function<const char*(const char*)>;

/// The nearest launcher wins: ranks of mpirun inside a Slurm job inherit the variables of the step that carries the
/// daemons, so Slurm's are read last.
/// Source: Open MPI 4.1 mpirun(1) "Environment variables"; MPICH hydra; Slurm 22.05 srun(1) "OUTPUT ENVIRONMENT".
Launcher read_launcher(const ReadVariable& variable);
Launcher read_launcher();  ///< of this process

/// Is this a task of srun? A batch script has most of a task's variables too, and is none.
bool in_slurm_step(const ReadVariable& variable);

/// The trap that costs users a night: N processes, each a world of one rank. Says so in one line with what to do, or
/// nothing when the world is as the launcher made it.
std::optional<std::string> separate_worlds(const Launcher& launcher, int mpi_world_size);

}  // namespace gradmeter::runtime
