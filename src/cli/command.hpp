// A subcommand: its name, what it does, whether it needs ranks, and how it is run.
#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bench/engine/session.hpp"
#include "runtime/communicator.hpp"

namespace gradmeter::cli {

/// What the program was started with, the subcommand's name taken off.
struct Invocation {
  std::vector<std::string> arguments;
  std::string command_line;  ///< as typed, for the record
  bench::ProcessWatch process;
  int rank = 0;                                  ///< as the launcher says it, before MPI is up
  const runtime::Communicator* world = nullptr;  ///< null for a command that runs without ranks
};

/// `with_ranks`: main has made the world (of MPI, or of threads) when `run` is called. run returns the exit code.
/// `progress_flag`: only when this flag is given a progress thread may call MPI; empty: always. MPI's calls cost less
/// where it may not.
struct Command {
  std::string_view name, summary;
  bool with_ranks;
  int (*run)(const Invocation&);
  std::string_view progress_flag = {};
};
/// One file each; the table stands in main.cpp.
int run_scale_command(const Invocation&);
int run_train_command(const Invocation&);
int run_allreduce_command(const Invocation&);
int run_infer_command(const Invocation&);
int run_replay_command(const Invocation&);
int run_kernels_command(const Invocation&);
int run_codecs_command(const Invocation&);
int run_compare_command(const Invocation&);
int run_report_command(const Invocation&);
int run_import_command(const Invocation&);
int run_list_command(const Invocation&);
int run_doctor_command(const Invocation&);

}  // namespace gradmeter::cli
