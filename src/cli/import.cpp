// SPDX-License-Identifier: Apache-2.0
// gradmeter import: logs of other benchmarks as a result file. One process.
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <set>

#include "bench/engine/flags.hpp"
#include "bench/engine/output.hpp"
#include "cli/commands.hpp"
#include "core/error.hpp"
#include "core/format.hpp"
#include "core/print.hpp"
#include "core/result.hpp"
#include "importers/importers.hpp"

namespace gradmeter::cli {
namespace {

using core::UsageError;

FlagList describe_import() {
  FlagList flags("Flags", 110);
  add_switch(flags, "help,h", "this text");
  std::string names = "auto";
  for (const auto* f : importers::formats()) names += fmt::format(", {}", f->name);
  add_text(flags, "format", "auto", names.c_str());
  add_text(flags, "ranks", "", "number of ranks, if the log does not have it");
  add_text(flags, "collective", "", "the collective, if the log does not have it: allreduce, all_gather, ...");
  add_text(flags, "interconnect", "", "your label for the network between the ranks, stored with every point");
  add_text(flags, "machine", "",
           "your label for the machine: logs with the same label count as launches on one machine");
  add_switch(flags, "strict", "make it an error, not a note, if --ranks applies to no point of a log");
  add_result_file_flags(flags);
  return flags;
}

/// The content of a file; "-" reads standard input. Errors: UsageError.
std::string read_text(const std::string& path) {
  if (path == "-") return {std::istreambuf_iterator<char>(std::cin), {}};
  if (std::error_code unknown; std::filesystem::is_directory(path, unknown))
    throw UsageError(fmt::format("'{}' is a directory; name the logs in it", path));
  std::ifstream in(path, std::ios::binary);
  if (!in) throw UsageError(fmt::format("cannot read '{}'; name an existing log", path));
  return {std::istreambuf_iterator<char>(in), {}};
}

importers::UserFacts read_user_facts(const Flags& flags) {
  importers::UserFacts user_facts;
  if (flags.has("ranks"))
    user_facts.ranks = static_cast<std::int64_t>(parse_count("--ranks", flags.text("ranks"), 1, 1u << 24));
  if (flags.has("collective")) user_facts.collective = read_label(flags, "collective");
  if (flags.has("interconnect")) user_facts.interconnect = read_label(flags, "interconnect");
  if (flags.has("machine")) user_facts.machine = read_label(flags, "machine");
  return user_facts;
}

/// Errors: UsageError for a log that is given twice, or that the result file already has: its run ids would be
/// ambiguous, and one launch would count twice.
void require_new_logs(const std::vector<importers::Imported>& logs, const OutputFlags& output) {
  std::set<std::string> known;
  if (output.append && std::filesystem::exists(output.path))
    for (const auto& run : core::read_results(output.path).runs) known.insert(run.info.run_id);
  for (const auto& log : logs) {
    const std::string& id = log.runs.front().info.run_id;
    if (!known.insert(id).second) throw UsageError(fmt::format("{}: this log is imported already; give each once", id));
  }
}

/// Prints a note if --ranks has no effect on a log, since each of its points states a number of ranks, and another one.
/// Errors: UsageError with --strict.
void note_unused_ranks(const importers::Imported& log, std::int64_t given, bool strict) {
  std::set<std::int64_t> stated;
  for (const auto& run : log.runs) {
    for (const auto& p : run.points) {
      const auto* const ranks = p.factors[core::Factor::ranks].as<std::int64_t>();
      if (!ranks || *ranks == given) return;
      stated.insert(*ranks);
    }
  }
  if (stated.empty()) return;
  const std::string why = fmt::format("{}: --ranks {} is not used, since the log says ranks itself: {}",
                                      core::printable(log.runs.front().info.run_id), given, fmt::join(stated, ", "));
  if (strict) throw UsageError(fmt::format("{}; leave --ranks out", why));
  core::print(stderr, "{}\n", why);
}

int import_logs(const Flags& flags) {
  OutputFlags output = read_output_flags(flags);
  if (output.path.empty()) throw UsageError("import: name the result file with --out");
  const auto user_facts = read_user_facts(flags);
  std::vector<importers::Imported> logs;  // all are read before anything is written
  for (const auto& path : flags.words())
    logs.push_back(importers::import_log(read_text(path), path, flags.text("format"), user_facts));
  if (user_facts.ranks > 0)
    for (const auto& log : logs) note_unused_ranks(log, user_facts.ranks, flags.on("strict"));
  check_output(output, {}, "allreduce");
  require_new_logs(logs, output);
  for (const auto& log : logs) {
    std::size_t points = 0;
    for (const auto& run : log.runs) {
      const auto writer = open_output(output, run.info);
      for (const auto& p : run.points) writer->append(p);
      writer->finish();
      output.force = false;
      output.append = true;
      points += run.points.size();
    }
    const std::string id = core::printable(log.runs.front().info.run_id);
    const std::string runs = log.runs.size() > 1 ? fmt::format(" in {} runs", log.runs.size()) : "";
    core::print("{}: {}{}; it does not say {}\n", id, report::counted(points, "point"), runs,
                core::printable(log.not_stated));
    if (!log.faults.empty()) core::print("{}: {}\n", id, core::printable(log.faults));
  }
  return static_cast<int>(core::ExitCode::done);
}

Usage import_usage() {
  return {.flags = describe_import(),
          .about =
              "gradmeter import LOG... --out FILE: turns logs of other benchmarks into a result file, for compare and\n"
              "report; - reads a pipe\n"
              "\n"
              "gradmeter import all_reduce_perf.log osu.log --ranks 8 --out results/others.jsonl",
          .words = "logs"};
}

int run_import_command(const Flags& flags, const Invocation&) {
  if (flags.words().empty()) throw UsageError("import: name logs; see gradmeter import --help");
  return import_logs(flags);
}

}  // namespace

extern const Command import_command{
    .name = "import",
    .summary = "logs of nccl-tests, OSU, PARAM, DeepBench, PyTorch's profiler … as a result file",
    .with_ranks = false,
    .usage = import_usage,
    .run = run_import_command};

}  // namespace gradmeter::cli
