// The result file of a run: opened, and earlier points read, on rank 0 only; all ranks get its errors.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "bench/engine/session.hpp"
#include "cli/flags/flags.hpp"
#include "core/result_file.hpp"

namespace gradmeter::cli {

void add_output_flags(options::options_description&);

struct OutputFlags {
  std::string path;  ///< empty: no file
  bool force = false, resume = false, append = false;
  bool resume_any = false;  ///< what was measured by another build, with other libraries, environment or binding too
};
/// Errors: UsageError when two of --force, --resume, --append are given, or one without --out.
OutputFlags read_output_flags(const Flags&);

/// On rank 0: checks that the file may be written and reads what --resume needs, but writes nothing.
/// Errors: UsageError of one line.
struct Earlier {
  std::map<std::string, core::Point> finished;  ///< by Factors::key()
  std::string note;                             ///< to tell the user
};
Earlier check_output(const OutputFlags&, const core::RunInfo& now, const std::string& experiment);

/// Collective: the same finished points on every rank, as rank 0 read them.
std::map<std::string, core::Point> share_finished(const runtime::Communicator& world,
                                                  std::map<std::string, core::Point> finished);

/// Null without a path. Rank 0 only.
std::unique_ptr<core::ResultWriter> open_output(const OutputFlags&, const core::RunInfo&);

/// The result file of a command, which ends with the command's exit code.
class CommandOutput {
 public:
  /// As `open_output`; the writer lives until `end`.
  core::ResultWriter* open(const OutputFlags&, const core::RunInfo&);
  /// Where a file is open and could be written, writes how the run ended, and closes it. reason: what the program says
  /// of an error. Gives the exit code: another one where that could not be written, which it says on standard error.
  int end(int code, std::string_view reason = {}) noexcept;

 private:
  std::unique_ptr<core::ResultWriter> writer_;
};

}  // namespace gradmeter::cli
