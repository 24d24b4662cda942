// SPDX-License-Identifier: Apache-2.0
// The result file of a run. Only rank 0 opens the file and reads the points of earlier runs from it; an error of rank 0
// reaches all ranks.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "bench/engine/flags.hpp"
#include "bench/engine/session.hpp"
#include "core/result_file.hpp"

namespace gradmeter::bench {

/// Adds --out, --force, --append and --resume, for commands that measure.
void add_output_flags(FlagList&);
/// Adds --out, --force and --append, for commands that cannot continue an earlier run (import, predict, train).
void add_result_file_flags(FlagList&);

struct OutputFlags {
  std::string path;  ///< empty: no file
  bool force = false, resume = false, append = false;
  /// true: with `resume`, points are also kept that were measured by another build, or with other libraries,
  /// environment or binding (--resume=any).
  bool resume_any = false;
};
/// Errors: UsageError when two of --force, --resume, --append are given, when one is given without --out (unless
/// --force is meant for another output file), and for control characters in the path.
OutputFlags read_output_flags(const Flags&);

/// The rows that the result file has already.
struct EarlierResults {
  std::map<std::string, core::Point> finished;  ///< the rows that are kept, by Factors::key()
  std::string note;                             ///< text to tell the user
};
/// Checks that the file may be written, and reads the rows that --resume keeps. It writes nothing. this_run: the head
/// line of this run. Rank 0 only. Errors: UsageError of one line.
EarlierResults check_output(const OutputFlags&, const core::RunInfo& this_run, const std::string& experiment);

/// Gives every rank the finished points that rank 0 has read. Collective.
std::map<std::string, core::Point> share_finished(const runtime::Communicator& world,
                                                  std::map<std::string, core::Point> finished);

/// Opens the result file; null without a path. Rank 0 only.
std::unique_ptr<core::ResultWriter> open_output(const OutputFlags&, const core::RunInfo&);

/// The result file of a command. Its last line holds the command's exit code.
class CommandOutput {
 public:
  /// Does what `open_output` does; the writer lives until `end`.
  core::ResultWriter* open(const OutputFlags&, const core::RunInfo&);
  /// Writes how the run ended and closes the file, if it is open and can be written. reason: the text of an error.
  /// Returns `code`. If the end could not be written, says so on standard error, and returns another exit code in place
  /// of 0.
  int end(int code, std::string_view reason = {}) noexcept;

 private:
  std::unique_ptr<core::ResultWriter> writer_;
};

}  // namespace gradmeter::bench
