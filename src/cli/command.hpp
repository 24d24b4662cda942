// A subcommand: its name, what it does, whether it needs ranks, and how it is run.
#pragma once
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bench/engine/session.hpp"
#include "cli/flags/flags.hpp"
#include "cli/output.hpp"
#include "runtime/communicator.hpp"

namespace gradmeter::cli {

/// What the program was started with, the subcommand's name taken off.
struct Invocation {
  std::vector<std::string> arguments;
  std::string command_line;  ///< for the record; a shell makes the same words of it
  bench::ProcessWatch process;
  int rank = 0;                                  ///< as the launcher says it, before MPI is up
  const runtime::Communicator* world = nullptr;  ///< null for a command that runs without ranks
  CommandOutput* output = nullptr;               ///< for its result file
};

/// `usage`: its flags and words, from which --help, completions and the manual are made. main has read the flags and
/// answered --help when `run` is called.
/// `with_ranks`: main has made the world (of MPI, or of threads) when `run` is called. run returns the exit code.
/// `progress_flag`: only when this flag is given a progress thread may call MPI; empty: always; null: never. MPI's
/// calls cost less where it may not.
struct Command {
  std::string_view name, summary;
  bool with_ranks;
  Usage (*usage)();
  int (*run)(const Flags&, const Invocation&);
  std::optional<std::string_view> progress_flag = "";
};
/// All of them; the table stands in main.cpp.
std::span<const Command> commands();

/// One file each.
Usage scale_usage();
int run_scale_command(const Flags&, const Invocation&);
Usage train_usage();
int run_train_command(const Flags&, const Invocation&);
Usage allreduce_usage();
int run_allreduce_command(const Flags&, const Invocation&);
Usage infer_usage();
int run_infer_command(const Flags&, const Invocation&);
Usage replay_usage();
int run_replay_command(const Flags&, const Invocation&);
Usage kernels_usage();
int run_kernels_command(const Flags&, const Invocation&);
Usage codecs_usage();
int run_codecs_command(const Flags&, const Invocation&);
Usage links_usage();
int run_links_command(const Flags&, const Invocation&);
Usage compare_usage();
int run_compare_command(const Flags&, const Invocation&);
Usage report_usage();
int run_report_command(const Flags&, const Invocation&);
Usage watch_usage();
int run_watch_command(const Flags&, const Invocation&);
Usage import_usage();
int run_import_command(const Flags&, const Invocation&);
Usage list_usage();
int run_list_command(const Flags&, const Invocation&);
Usage completion_usage();
int run_completion_command(const Flags&, const Invocation&);
Usage manual_usage();
int run_manual_command(const Flags&, const Invocation&);
Usage doctor_usage();
int run_doctor_command(const Flags&, const Invocation&);

}  // namespace gradmeter::cli
