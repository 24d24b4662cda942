// SPDX-License-Identifier: Apache-2.0
// Turns logs of other benchmarks into runs of our result file, for the commands compare and report. Values that a log
// does not give are null, and `not_stated` lists them. Each format is one source file and one entry of formats().
#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.hpp"
#include "core/result_file.hpp"

namespace gradmeter::importers {

/// Facts that the user adds to the log.
struct UserFacts {
  std::int64_t ranks = 0;  ///< 0: unknown
  std::string collective;  ///< empty: unknown
  std::string interconnect;
  /// A label of the machine. Logs with equal labels count as one machine's, whatever hosts they name; empty: none.
  std::string machine = {};
};

/// The record of a run of which nothing is known; its ranks and nodes are 0.
inline core::RunInfo unknown_run() {
  core::RunInfo info;
  info.ranks = info.nodes = 0;
  return info;
}

/// What was read from a log.
struct Imported {
  /// One for each launch, in the order of the log. A format sets `nodes` if the log names all hosts.
  std::vector<core::Run> runs{core::Run{.info = unknown_run(), .points = {}}};
  std::string not_stated;  ///< what the log does not say: "the spread of times; the number of ranks"
  /// "left out: 2 rows whose time or rate is 0 or less"; empty: all rows were read and are trusted
  std::string faults;
  /// True if all rows are of kinds that gradmeter does not have; a log that gives no point is then no error.
  bool has_only_unknown_kinds = false;
  core::Run& run() { return runs.back(); }  ///< the run that is being read
  /// Must be called at the head of each further program run that the log contains (several programs, or one in a loop).
  void begin_run() {
    if (!run().points.empty()) runs.emplace_back();
    run() = {.info = unknown_run(), .points = {}};
  }
};

/// A format of logs. `about` and `source` describe it to users: what it has, and which program defines it.
struct Format {
  std::string_view name, about, source;
  /// True if a log is in this format, judged by what the format's tool prints first.
  bool (*recognises)(std::string_view log);
  /// Reads a log. Rows of tables that are cut or unreadable are left out, and `faults` counts them. Errors: UsageError
  /// "line N: what is wrong" for a log that is not of this format or contradicts the user_facts.
  Imported (*read)(std::string_view log, const UserFacts&);
};
std::span<const Format* const> formats();

/// Reads a log in the named format; "auto" takes the first that recognises it. `label`: the file's name, for errors and
/// for the ids of the runs. If a row has the same factors as an earlier row of its run, it begins the next run, so that
/// no row replaces another. The fingerprint of a run is that of `UserFacts::machine`, or else of the stems of its
/// hosts' names (runtime::host_stem) and the kinds of its GPUs, or else of the log itself, since nothing says that two
/// logs without hosts are of one machine. Errors: UsageError "FILE: line N: …", also for a log of no known format, and
/// for a log without rows to import, unless all its rows are of kinds that gradmeter does not have.
Imported import_log(std::string_view log, const std::string& label, const std::string& format, const UserFacts&);

// Each format is defined in the source that has its name.
extern const Format nccl_tests_format, nccl_tests_json_format, osu_format, imb_format, deepbench_format, param_format,
    inspector_format, kineto_format, execution_trace_format, chakra_format;

}  // namespace gradmeter::importers
