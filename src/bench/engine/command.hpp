// SPDX-License-Identifier: Apache-2.0
// A subcommand: its name, what it does, whether it needs ranks, and how it is run.
#pragma once
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bench/engine/flags.hpp"
#include "bench/engine/output.hpp"
#include "bench/engine/session.hpp"
#include "core/error.hpp"
#include "core/format.hpp"
#include "core/result.hpp"
#include "runtime/communicator.hpp"

namespace gradmeter::bench {

struct Command;

/// The arguments of a subcommand, without its name, and the facts of the process that runs it.
struct Invocation {
  std::vector<std::string> arguments;
  /// The whole command as one line, for result files; quoted such that a shell reads the same words from it.
  std::string command_line;
  ProcessWatch process;
  int rank = 0;                                   ///< this rank's number from the launcher, known before MPI starts
  const runtime::Communicator* world = nullptr;   ///< null for a command that runs without ranks
  CommandOutput* output = nullptr;                ///< the result file, if the command writes one
  std::span<const Command* const> commands = {};  ///< all commands of the program
};

/// A command is defined in the folder or source file that has its name; main.cpp lists all commands. `usage` describes
/// its flags and words; --help, completions and the manual are made from it. `run` returns the exit code. Before main
/// calls `run`, it has read the flags and answered --help; if the command is `with_ranks`, main has also made the world
/// (of MPI, or of threads).
/// `progress_flag` decides whether MPI starts in the slower mode that allows a progress thread to call it: always (""),
/// only where the flag of this name is given, or never (nullopt).
struct Command {
  std::string_view name, summary;
  bool with_ranks;
  Usage (*usage)();
  int (*run)(const Flags&, const Invocation&);
  std::optional<std::string_view> progress_flag = "";
};

/// Runs `check` on rank 0. If it throws a UsageError there, all ranks throw one with the same text.
template <class Check>
void run_on_rank_0(const runtime::Communicator& world, Check check) {
  std::string refusal;
  if (world.rank() == 0) {
    try {
      check();
    } catch (const core::UsageError& e) {
      refusal = e.what();
    }
  }
  refusal = world.broadcast_text(refusal);
  if (!refusal.empty()) throw core::UsageError(refusal);
}

/// The text with which the head of an output begins: "gradmeter 0.1.0 (1f6b166b)  links  2 ranks on 1 node". what: a
/// subcommand's name or other words; may be empty.
std::string head_line(const core::RunInfo&, std::string_view what);

}  // namespace gradmeter::bench
