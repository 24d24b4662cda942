// The result file: JSON Lines, appended and flushed point by point, so that a killed job keeps what it had measured.
// Line kinds: {"kind":"run",…} heads the points of one run; {"kind":"point",…} is one measured point;
// {"kind":"plan",…} and {"kind":"end",…} say how many points a run means to measure and how it ended;
// {"kind":"note",…} is a remark. Unknown keys are allowed and ignored; an unknown kind is refused.
#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "core/result.hpp"

namespace gradmeter::core {

inline constexpr int result_schema = 2;

/// How many points a run means to measure, told before the first.
struct RunPlan {
  std::int64_t points = 0;
  std::int64_t kept = 0;  ///< of an earlier run (--resume), besides
};
RunPlan make_plan(std::size_t points, std::size_t kept);
/// How a run ended.
struct RunEnd {
  std::string time;       ///< as RunInfo's
  std::int64_t exit = 0;  ///< the program's exit code
  std::string reason;     ///< what it said of an error; empty: nothing
};

/// plan: the sum where a run told several. Files of earlier programs, and runs that were killed, have no end.
struct Run {
  RunInfo info;
  std::vector<Point> points;
  std::optional<RunPlan> plan = {};
  std::optional<RunEnd> end = {};
};

/// A whole file. `note` says that a torn last line was dropped (empty otherwise). `left_out`: "FILE:LINE: why" of lines
/// that a lenient reader could not use.
struct ResultFile {
  std::vector<Run> runs;
  std::string note;
  std::vector<std::string> left_out;
};

/// lenient: lines that cannot be used are left out, and lines of a newer schema are read as far as their keys are
/// known.
enum class Reading { strict, lenient };

/// One line each, no newline. Non-finite numbers become null and their key's name goes to "nonfinite".
std::string to_json_line(const RunInfo&);
std::string to_json_line(const Point&, const std::string& run_id);
std::string to_json_line(const RunPlan&, const std::string& run_id);
std::string to_json_line(const RunEnd&, const std::string& run_id);

/// Errors: UsageError "FILE:LINE: what is wrong; what it should be" for a bad line other than a torn last one, for a
/// file that is not gradmeter's, for another schema number, for a point before its run. Lenient: only where the file
/// cannot be read, or has no run at all.
ResultFile read_results(const std::filesystem::path&, Reading = Reading::strict);
/// Parses text as if it were the file called `label` (the fuzz target).
ResultFile parse_results(std::string_view text, const std::string& label, Reading = Reading::strict);

enum class OpenMode { create, overwrite, resume };

/// Appends lines, each by one write(2), in the kernel before `append` returns. A network's disk may be away a minute.
/// create: refuses an existing file (UsageError names --force and --resume). resume: drops a torn last line before it
/// appends. Errors: UsageError when it cannot be opened, or another job has it; BackendError when a write fails.
class ResultWriter {
 public:
  ResultWriter(const std::filesystem::path&, OpenMode);
  ~ResultWriter();
  ResultWriter(const ResultWriter&) = delete;
  ResultWriter& operator=(const ResultWriter&) = delete;
  void append(const RunInfo&);
  void append(const Point&);
  void append(const RunPlan&);
  void append(const RunEnd&);
  const std::filesystem::path& path() const { return path_; }
  /// The last line could not be written: half of it may stand in the file, and nothing should follow.
  bool failed() const { return failed_; }

 private:
  const std::string& run_id() const;  ///< Errors: logic_error before the run's own line
  void write_line(const std::string&);
  std::filesystem::path path_;
  int file_ = -1;
  bool failed_ = false;
  std::string run_id_;
};

/// Finished points of earlier runs on the same machine: status ok, unsupported or skipped (failed, wrong and
/// mistrusted are measured again). The last one wins.
std::map<std::string, Point> finished_points(const ResultFile&, const std::string& fingerprint,
                                             const std::string& experiment);

}  // namespace gradmeter::core
