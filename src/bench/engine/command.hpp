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

/// The arguments and facts that the program was started with, without the subcommand's name.
struct Invocation {
  std::vector<std::string> arguments;
  std::string command_line;  ///< for the record; a shell makes the same words of it
  ProcessWatch process;
  int rank = 0;                                   ///< this rank by the launcher's count, known before MPI is started
  const runtime::Communicator* world = nullptr;   ///< null for a command that runs without ranks
  CommandOutput* output = nullptr;                ///< output to its result file
  std::span<const Command* const> commands = {};  ///< all commands of the program
};

/// A command is defined in the folder or source of its name, and main.cpp lists all.
/// `usage`: its flags and words, from which --help, completions and the manual are made. When `run` is called, main has
/// read the flags and answered --help.
/// `with_ranks`: when `run` is called, main has made the world (of MPI, or of threads). run returns the exit code.
/// `progress_flag`: a progress thread may call MPI only when this flag is given; empty: always; null: never. MPI's
/// calls cost less where no such thread may call it.
struct Command {
  std::string_view name, summary;
  bool with_ranks;
  Usage (*usage)();
  int (*run)(const Flags&, const Invocation&);
  std::optional<std::string_view> progress_flag = "";
};

/// Runs `check` on rank 0; when it throws a UsageError, all ranks throw one with its text.
template <class Check>
void agree(const runtime::Communicator& world, Check check) {
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

/// The text with which every head begins: "gradmeter 0.1.0 (1f6b166b)  links  2 ranks on 1 node". what: may be empty.
std::string head_line(const core::RunInfo&, std::string_view what);

}  // namespace gradmeter::bench
