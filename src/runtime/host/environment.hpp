// SPDX-License-Identifier: Apache-2.0
// Facts from environment variables (settings that change this program's times, and its launcher), and versions of
// libraries. Results never record the whole environment, since it may hold secrets.
#pragma once
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace gradmeter::runtime {

/// True if results record this variable. They record a fixed list of names, and the variables of Open MPI's tuning
/// parameters, NCCL and the like. They never record a variable whose name looks like that of a key, token or password,
/// nor those that mpirun sets for its own use (addresses, session directories, the transport key).
bool is_recorded_variable(std::string_view name);

/// The recorded variables by name. `block`: an array of "NAME=value" strings that ends with a null pointer; null: the
/// environment of this process.
std::map<std::string, std::string> recorded_environment(const char* const* block = nullptr);

/// Versions of hwloc, glibc and the compiler by name. (The adapters of MPI and CUDA give those of MPI and CUDA.)
std::map<std::string, std::string> library_versions();

/// The launcher of this process, judged by environment variables alone: the launcher must be known before MPI runs, and
/// even if MPI does not recognise it.
struct Launcher {
  std::string name;  ///< "mpirun (Open MPI)", "mpiexec (MPICH)", "mpiexec (Intel MPI)", "srun", "PMIx"; empty: a shell
                     ///< started this process
  int rank = 0;
  /// The number of ranks that the launcher started. If only PMIx's variables are set, which do not tell this number, it
  /// is a lower bound: rank + 1.
  int size = 1;
};

/// Reads a variable as getenv does: null where it is not set.
using ReadVariable = std::function<const char*(const char*)>;

/// Finds the launcher. Inside a Slurm job, ranks of mpirun inherit the variables of the Slurm step that carries
/// mpirun's daemons, so what Slurm's variables say counts last.
/// Source: Open MPI 4.1 mpirun(1) "Environment variables"; MPICH hydra; Slurm 22.05 srun(1) "OUTPUT ENVIRONMENT".
Launcher read_launcher(const ReadVariable& get_variable);
Launcher read_launcher();  ///< the launcher of this process

/// True if this is a task of srun. A batch script has most of a task's variables too, but is not one.
bool in_slurm_step(const ReadVariable& get_variable);

/// Detects that a launcher has started N processes which MPI sees as N worlds of one rank each, a mistake that can cost
/// a user a whole run. Returns one line with what to do; empty if MPI's world has more than one rank, or the
/// launcher started only one.
std::optional<std::string> separate_worlds_advice(const Launcher& launcher, int mpi_world_size);

}  // namespace gradmeter::runtime
