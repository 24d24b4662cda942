// A subcommand: its name, what it does, whether it needs ranks, and how it is run.
#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/signals.hpp"

namespace gradmeter::cli {

/// What the program was started with, the subcommand's name taken off.
struct Invocation {
  std::vector<std::string> arguments;
  std::string command_line;       ///< as typed, for the record
  runtime::SignalWatch& signals;  ///< made before MPI started
  int rank = 0;                   ///< as the launcher says it, before MPI is up
};

/// `with_mpi`: main has started MPI when `run` is called, and ends it after. run returns the exit code.
/// `progress_flag`: only when this flag is given a progress thread may call MPI; empty: always. MPI's calls cost less
/// where it may not.
struct Command {
  std::string_view name, summary;
  bool with_mpi;
  int (*run)(const Invocation&);
  std::string_view progress_flag = {};
};
/// One file each; the table stands in main.cpp.
int run_scale_command(const Invocation&);
int run_train_command(const Invocation&);
int run_allreduce_command(const Invocation&);
int run_kernels_command(const Invocation&);
int run_codecs_command(const Invocation&);
int run_list_command(const Invocation&);
int run_doctor_command(const Invocation&);

}  // namespace gradmeter::cli
