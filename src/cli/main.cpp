// SPDX-License-Identifier: Apache-2.0
// gradmeter: how training efficiency depends on mini-batch, precision, gradient exchange and interconnect, and why.
#include <pthread.h>
#include <stdio_ext.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>

#include "bench/engine/flags.hpp"
#include "bench/engine/output.hpp"
#include "bench/engine/version.hpp"
#include "cli/commands.hpp"
#include "core/error.hpp"
#include "core/format.hpp"
#include "core/name.hpp"
#include "core/print.hpp"
#include "core/units.hpp"
#include "kernels/host/library.hpp"
#include "runtime/communicator.hpp"
#include "runtime/host/environment.hpp"
#include "runtime/host/gpus.hpp"
#include "runtime/mpi/session.hpp"
#include "runtime/threads/this_thread.hpp"
#include "runtime/threads/thread_group.hpp"

// A command that measures is defined in the folder of its name in src/bench, any other in the source of its name in
// this folder.
namespace gradmeter::bench {
extern const Command scale_command, train_command, allreduce_command, kernels_command, infer_command, replay_command,
    codecs_command, links_command, doctor_command;
}
namespace gradmeter::cli {
extern const Command predict_command, compare_command, report_command, watch_command, import_command, list_command,
    completion_command, manual_command;
}

namespace {

using namespace gradmeter;
using core::ExitCode;

constexpr std::array command_table{&bench::scale_command,   &bench::train_command, &bench::allreduce_command,
                                   &bench::kernels_command, &bench::infer_command, &bench::replay_command,
                                   &bench::codecs_command,  &bench::links_command, &cli::predict_command,
                                   &cli::compare_command,   &cli::report_command,  &cli::watch_command,
                                   &cli::import_command,    &cli::list_command,    &cli::completion_command,
                                   &cli::manual_command,    &bench::doctor_command};

std::string help() {
  std::string text = fmt::format(
      "gradmeter {}: how does training efficiency on this machine depend on mini-batch,\n"
      "gradient exchange and interconnect, and why?\n\nusage: [mpirun -np N] gradmeter COMMAND [FLAGS]\n\n",
      bench::version());
  for (const auto* c : command_table) text += fmt::format("  {:10} {}\n", c->name, c->summary);
  return text + "\ngradmeter COMMAND --help shows the flags of a command. First try: mpirun -np 2 gradmeter scale\n";
}

const bench::Command& find_command(const std::string& name) {
  std::vector<std::string> known;
  for (const auto* c : command_table) {
    if (c->name == name) return *c;
    known.emplace_back(c->name);
  }
  core::refuse_unknown("command", name, known);
}

bool asks_for(const std::vector<std::string>& arguments, std::string_view flag) {
  return std::ranges::find(arguments, flag) != arguments.end();
}

/// The thread support to ask MPI for: a progress thread may call MPI too if the command always has one, or if its
/// `progress_flag` is given ("--overlap gemm" or "--overlap=gemm").
runtime::MpiThreads threads_for(const bench::Command& c, const std::vector<std::string>& arguments) {
  const auto& flag = c.progress_flag;
  const bool has_progress_thread =
      flag &&
      (flag->empty() || std::ranges::any_of(arguments, [&](const std::string& a) { return a.starts_with(*flag); }));
  return has_progress_thread ? runtime::MpiThreads::serialized : runtime::MpiThreads::funneled;
}

void print_error(int rank, const std::exception& e, bool with_rank) {
  if (with_rank) {
    core::print(stderr, "gradmeter: rank {}: {}\n", rank, core::printable(e.what()));
  } else if (rank == 0) {
    core::print(stderr, "gradmeter: {}\n", core::printable(e.what()));
  }
}

/// Ends the whole job. Returns only where there are no other ranks.
int end_job(ExitCode code) {
  std::fflush(nullptr);
  if (runtime::MpiSession::running()) runtime::MpiSession::abort(static_cast<int>(code));
  if (runtime::thread_ranks_running()) std::_Exit(static_cast<int>(code));
  return static_cast<int>(code);
}

/// Ends the whole job after an error on one rank, since its peers would wait for it forever.
int end_job(int rank, const std::exception& e, ExitCode code) {
  print_error(rank, e, true);
  return end_job(code);
}

/// A rank that ends waits this long for the others to end.
constexpr core::Seconds patience{5};

/// Ends this rank after an error that ranks usually find all alike, with one line from rank 0. Where a rank goes on,
/// the error is one rank's own, and ends the whole job. ends: a communicator for this purpose alone; null: there are no
/// other ranks.
int end_alike(int rank, const std::exception& e, ExitCode code, const runtime::Communicator* exit_communicator) {
  print_error(rank, e, false);
  if (!exit_communicator || exit_communicator->arrive_within(patience)) return static_cast<int>(code);
  return rank == 0 ? end_job(code) : end_job(rank, e, code);
}

/// Raises the limit of the stack, also for threads that start later, if it is below 1 MiB: a program whose stack
/// overflows ends without a message. Errors: UsageError if the limit cannot be raised so far.
void check_stack() {
  constexpr rlim_t least = 1 << 20, usual = 8 << 20;
  rlimit limit{};
  if (::getrlimit(RLIMIT_STACK, &limit) != 0 || limit.rlim_cur >= least) return;
  limit.rlim_cur = std::min<rlim_t>(usual, limit.rlim_max);
  if (limit.rlim_cur < least || ::setrlimit(RLIMIT_STACK, &limit) != 0) {
    throw core::UsageError(fmt::format("the stack is limited to {}, and this needs {}; raise it: ulimit -s {}",
                                       core::to_text(core::Bytes{limit.rlim_cur}), core::to_text(core::Bytes{least}),
                                       usual >> 10));
  }
  pthread_attr_t attributes;
  if (::pthread_getattr_default_np(&attributes) != 0) return;
  if (::pthread_attr_setstacksize(&attributes, limit.rlim_cur) == 0) ::pthread_setattr_default_np(&attributes);
  ::pthread_attr_destroy(&attributes);
}

core::BackendError output_error() {
  const std::string why = errno ? std::strerror(errno) : "an earlier write failed";
  return {"libc", "write", fmt::format("standard output: {}; what was printed is not all there", why)};
}

/// Flushes standard output. Errors: BackendError if it did not take all that was printed, as on a full disk.
void check_printed() {
  errno = 0;
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) throw output_error();
}

/// Runs a command and turns its errors into exit codes. They are caught here, while MPI is still up: a regular end of
/// MPI needs all ranks, and an error may be one rank's own. ends: as for `end_alike`.
int run_guarded(const bench::Command& command, bench::Invocation invocation,
                const runtime::Communicator* exit_communicator = nullptr) {
  bench::CommandOutput output;
  invocation.output = &output;
  invocation.commands = command_table;
  const auto ended = [&](ExitCode code, const std::exception& e) {
    return output.end(static_cast<int>(code), e.what());
  };
  try {
    const bench::Usage usage = command.usage();
    const bench::Flags flags = cli::parse_flags(command.name, usage, invocation.arguments);
    if (!flags.has("help")) {
      // A command without ranks runs on rank 0 only, also under mpirun.
      const bool does_nothing = !command.with_ranks && invocation.rank != 0;
      const int code = does_nothing ? 0 : command.run(flags, invocation);
      if (invocation.rank == 0) check_printed();
      const int end = output.end(code);
      if (exit_communicator) exit_communicator->sleeping_barrier();  // a rank may have an error to the last
      return end;
    }
    if (invocation.rank == 0) core::print("{}", cli::help_text(usage));
    return static_cast<int>(ExitCode::done);
  } catch (const core::UsageError& e) {
    ended(ExitCode::usage, e);
    return end_alike(invocation.rank, e, ExitCode::usage, exit_communicator);
  } catch (const core::Unavailable& e) {
    ended(ExitCode::backend, e);
    return end_alike(invocation.rank, e, ExitCode::backend, exit_communicator);
  } catch (const core::Interrupted& e) {
    const int end = output.end(core::interrupted_exit_code(e.signal()), e.what());
    if (exit_communicator) (void)exit_communicator->arrive_within(patience);  // a rank that had done all waits there
    return end;
  } catch (const core::WrongResult& e) {
    ended(ExitCode::wrong_result, e);
    return end_job(invocation.rank, e, ExitCode::wrong_result);
  } catch (const core::LostGpu& e) {
    ended(ExitCode::lost_gpu, e);
    return end_job(invocation.rank, e, ExitCode::lost_gpu);
  } catch (const std::exception& e) {
    if (const std::string lost = runtime::lost_gpu(); !lost.empty()) {
      const core::LostGpu cause(fmt::format("{}; {}", e.what(), lost));
      ended(ExitCode::lost_gpu, cause);
      return end_job(invocation.rank, cause, ExitCode::lost_gpu);
    }
    const core::BackendError lost_output = output_error();
    const std::exception& cause = std::ferror(stdout) != 0 ? lost_output : e;
    ended(ExitCode::backend, cause);
    return end_job(invocation.rank, cause, ExitCode::backend);
  }
}

int run_in_mpi_world(const bench::Command& command, bench::Invocation invocation, const runtime::Launcher& launcher) {
  if (const auto reason = runtime::separate_worlds_advice(launcher, runtime::MpiSession::world_size())) {
    print_error(invocation.rank, core::UsageError(*reason), false);
    return static_cast<int>(ExitCode::usage);
  }
  const auto world = runtime::MpiSession::world();
  invocation.world = &world;
  const auto exit_communicator = world.duplicate();
  return run_guarded(command, invocation, &exit_communicator);
}

int run_with_mpi(const bench::Command& command, const bench::Invocation& invocation,
                 std::optional<runtime::SignalWatch>& signals, int& argc, char**& argv) {
  // read first: without mpirun, Open MPI itself sets the variables of PMIx
  const auto launcher = runtime::read_launcher();
  const runtime::MpiSession mpi(argc, argv, threads_for(command, invocation.arguments));
  const int code = run_in_mpi_world(command, invocation, launcher);
  // When the first rank has left with a code other than 0, mpirun sends SIGTERM to the ranks that are still ending MPI.
  // Their work is done, so the signal may end them without a message.
  if (signals->first_signal() == 0) signals.reset();
  return code;
}

/// The value of --thread-ranks. It is needed before the command parses its flags, since ranks start first; the parser
/// checks the flag again later.
bench::ThreadRanks thread_ranks(const std::vector<std::string>& arguments) {
  const std::string flag = "--thread-ranks";
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i] == flag && i + 1 < arguments.size()) return bench::parse_thread_ranks(arguments[i + 1]);
    if (arguments[i].starts_with(flag + "=")) return bench::parse_thread_ranks(arguments[i].substr(flag.size() + 1));
  }
  return {};
}

int run_with_threads(bench::ThreadRanks threads, const bench::Command& command, const bench::Invocation& invocation) {
  if (runtime::read_launcher().size > 1) {
    throw core::UsageError(
        "--thread-ranks makes ranks of one process, and mpirun has started several; use one of the two");
  }
  std::atomic<int> code{0};
  runtime::run_thread_ranks(threads.ranks, [&](const runtime::Communicator& world) {
    runtime::flush_subnormals();
    if (threads.bind) runtime::bind_to_share(world);
    bench::Invocation mine = invocation;
    mine.rank = world.rank();
    mine.world = &world;
    const auto exit_communicator = world.duplicate();
    const int rank_code = run_guarded(command, mine, &exit_communicator);
    int expected = 0;
    if (rank_code != 0) code.compare_exchange_strong(expected, rank_code);
  });
  return code;
}

int run_command(const bench::Command& command, const bench::Invocation& invocation,
                std::optional<runtime::SignalWatch>& signals, int& argc, char**& argv) {
  const bool needs_ranks = command.with_ranks && !asks_for(invocation.arguments, "--help") &&
                           !asks_for(invocation.arguments, "-h") && !asks_for(invocation.arguments, "--dry-run");
  if (!needs_ranks) return run_guarded(command, invocation);
  if (const auto threads = thread_ranks(invocation.arguments); threads.ranks > 0)
    return run_with_threads(threads, command, invocation);
  return run_with_mpi(command, invocation, signals, argc, argv);
}

/// Closes standard output: quotas and network disks may refuse only now the data that they took before. A program that
/// was started without a standard output and has printed nothing has lost nothing. Errors: BackendError.
void close_standard_output() {
  const bool is_empty = __fpending(stdout) == 0 && std::ferror(stdout) == 0;
  if (!is_empty) check_printed();
  errno = 0;
  if (std::fclose(stdout) != 0 && !(errno == EBADF && is_empty))
    throw core::BackendError("libc", "close", fmt::format("standard output: {}", std::strerror(errno)));
}

int run(int argc, char** argv) {
  runtime::flush_subnormals();
  const int rank = runtime::read_launcher().rank;
  try {
    check_stack();
    std::optional<runtime::SignalWatch> signals(std::in_place);
    runtime::Watchdog watchdog;
    std::vector<std::string> arguments(argv + std::min(argc, 1), argv + argc);
    std::string line = "gradmeter";
    for (const auto& argument : arguments) line += " " + core::shell_word(argument);
    if (arguments.size() > 1 && arguments[0] == "help") {
      std::swap(arguments[0], arguments[1]);
      arguments[1] = "--help";
    }
    if (arguments.empty() || arguments[0] == "--help" || arguments[0] == "-h" || arguments[0] == "help") {
      if (rank == 0) core::print("{}", help());
      return 0;
    }
    if (arguments[0] == "--version" || arguments[0] == "-v") {
      if (rank == 0) core::print("gradmeter {} ({})\n", bench::version(), bench::commit());
      return 0;
    }
    const bench::Command& command = find_command(arguments[0]);
    arguments.erase(arguments.begin());
    const int code =
        run_command(command, {std::move(arguments), line, {*signals, watchdog}, rank}, signals, argc, argv);
    return code == 0 && core::has_failed_release() ? static_cast<int>(ExitCode::backend) : code;
  } catch (const core::UsageError& e) {
    print_error(rank, e, false);
    return static_cast<int>(ExitCode::usage);
  } catch (const std::exception& e) {
    if (std::ferror(stdout) != 0) {
      print_error(rank, output_error(), false);
    } else {
      print_error(rank, e, true);
    }
    return static_cast<int>(ExitCode::backend);
  }
}

}  // namespace

std::span<const bench::Command* const> cli::commands() { return command_table; }

int main(int argc, char** argv) {
  kernels::limit_loops_to_onednn_isa();
  runtime::set_cuda_defaults();
  const int code = run(argc, argv);
  try {
    if (code == 0) close_standard_output();
    return code;
  } catch (const core::BackendError& e) {
    print_error(0, e, false);
    return static_cast<int>(ExitCode::backend);
  }
}
