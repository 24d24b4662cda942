// The result file: JSON Lines, appended and flushed point by point, so that a killed job keeps what it had measured.
// Line kinds: {"kind":"run",…} heads the points of one run; {"kind":"point",…} is one measured point;
// {"kind":"plan",…} and {"kind":"end",…} say how many points a run means to measure and how it ended;
// {"kind":"note",…} is a remark. Unknown keys are allowed and ignored; an unknown kind is refused.
#pragma once
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <mutex>
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
/// Of each point its raw times, which are most of a file.
enum class Samples { kept, left_out };

/// One line each, no newline. Non-finite numbers become null and their key's name goes to "nonfinite".
std::string to_json_line(const RunInfo&);
std::string to_json_line(const Point&, const std::string& run_id);
std::string to_json_line(const RunPlan&, const std::string& run_id);
std::string to_json_line(const RunEnd&, const std::string& run_id);

/// Errors: UsageError "FILE:LINE: what is wrong; what it should be" for a bad line other than a torn last one, for a
/// file that is not gradmeter's, for another schema number, for a point before its run. Lenient: only where the file
/// cannot be read, or has no run at all.
/// Cost: of memory what the points take, and one line of the file.
ResultFile read_results(const std::filesystem::path&, Reading = Reading::strict, Samples = Samples::kept);
/// Parses text as if it were the file called `label` (the fuzz target).
ResultFile parse_results(std::string_view text, const std::string& label, Reading = Reading::strict);

enum class OpenMode { create, overwrite, resume };

/// Appends lines, each by one write(2), in the kernel before `append` returns; those that came within a second of each
/// other reach the disk together with the next or the end. A network's disk may be away a minute. Before each line the
/// open file is held against its path: one that was renamed keeps its rows and is named, one that was removed is
/// written anew, one that was cut short is an error. create: refuses an existing file (UsageError names --force and
/// --resume). resume: drops a torn last line before it appends. Errors: UsageError when it cannot be opened, or another
/// job has it; BackendError when a write fails, or what was written is not there any more.
class ResultWriter {
 public:
  ResultWriter(const std::filesystem::path&, OpenMode);
  /// Closes the file without a look at what comes of it: after an error.
  ~ResultWriter();
  ResultWriter(const ResultWriter&) = delete;
  ResultWriter& operator=(const ResultWriter&) = delete;
  void append(const RunInfo&);
  void append(const Point&);
  void append(const RunPlan&);
  void append(const RunEnd&);
  /// For a process that ends at once, from any thread: waits a fifth of a second at most for a line under way.
  void append_at_once(const RunEnd&) noexcept;
  /// All lines are on the disk, and the file is closed. Errors: BackendError where one of them is not.
  void finish();
  const std::filesystem::path& path() const { return path_; }
  /// The last line could not be written: half of it may stand in the file, and nothing should follow.
  bool failed() const { return failed_; }

 private:
  const std::string& run_id() const;  ///< Errors: logic_error before the run's own line
  void write_line(const std::string&);
  void write_over_outages(const std::string& text);
  void find_again();
  void restore();
  void sync(bool always);
  std::filesystem::path path_;
  int file_ = -1;
  bool is_stream_ = false;  ///< a pipe or a device, which keeps nothing
  bool failed_ = false;
  std::uintmax_t size_ = 0;  ///< what the file has at least
  std::chrono::steady_clock::time_point synced_{};
  std::timed_mutex writing_;
  std::string run_id_;
};

/// Under which other conditions a run was measured, in words: "commit 1a2b (now 3c4d)", "environment OMPI_MCA_btl tcp
/// (now not set)". Machine (fingerprint), version, commit, MPI, libraries, named environment but for the numbers of
/// batch jobs, binding. Empty: its points and today's are of one kind. What is not known of one of them differs not.
std::vector<std::string> differing_conditions(const RunInfo& then, const RunInfo& now);

/// Finished points of earlier runs under the same conditions, or under any: status ok, unsupported or skipped (failed,
/// wrong and mistrusted are measured again). The last one wins.
struct FinishedPoints {
  std::map<std::string, Point> points;             ///< by Factors::key()
  std::map<std::string, std::size_t> differently;  ///< others of the experiment, by the first condition that differs
};
FinishedPoints finished_points(const ResultFile&, const RunInfo& now, const std::string& experiment, bool any);

}  // namespace gradmeter::core
