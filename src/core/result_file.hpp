// SPDX-License-Identifier: Apache-2.0
// The result file: JSON Lines, appended and flushed point by point, so that a killed job keeps what it had measured.
// Line kinds: {"kind":"run",…} heads the points of one run; {"kind":"point",…} is one measured point;
// {"kind":"plan",…} and {"kind":"end",…} say how many points a run means to measure and how it ended;
// {"kind":"note",…} is a remark. Unknown keys are allowed and ignored; an unknown kind is refused.
#pragma once
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "core/result.hpp"

namespace gradmeter::core {

namespace detail {
class FileReader;
}

inline constexpr int result_schema = 2;

/// The number of points that a run means to measure. It is written before the run's first point.
struct RunPlan {
  std::int64_t points = 0;
  std::int64_t kept = 0;  ///< number of further points, which are taken from an earlier run (--resume)
};
RunPlan make_plan(std::size_t points, std::size_t kept);
struct RunEnd {
  std::string time;       ///< in the format of RunInfo::time
  std::int64_t exit = 0;  ///< the program's exit code
  std::string reason;     ///< the program's error message; empty: none
};

/// One run in a file. If the run wrote several plans, `plan` is their sum. `end` is empty if the run was killed, or if
/// the file is from an earlier version of gradmeter, which did not write it.
struct Run {
  RunInfo info;
  std::vector<Point> points;
  std::optional<RunPlan> plan = {};
  std::optional<RunEnd> end = {};
};

/// The content of a whole file. If the last line breaks off in the middle (is torn), it is dropped, and `note` says so;
/// else `note` is empty. `left_out` lists the lines that a lenient reader could not use, as "FILE:LINE: why".
struct ResultFile {
  std::vector<Run> runs;
  std::string note;
  std::vector<std::string> left_out;
};

/// lenient: lines that cannot be used are left out, and from lines of a newer schema only the known keys are read.
enum class Reading { strict, lenient };
/// The raw times of the points are kept in memory, or left out. They are the largest part of a file.
enum class Samples { kept, left_out };

/// Each function gives one line without its newline. Numbers that are not finite become null, and the names of their
/// keys are listed in "nonfinite".
std::string to_json_line(const RunInfo&);
std::string to_json_line(const Point&, const std::string& run_id);
std::string to_json_line(const RunPlan&, const std::string& run_id);
std::string to_json_line(const RunEnd&, const std::string& run_id);

/// Errors: UsageError "FILE:LINE: what is wrong; what it should be" for a bad line (but not for a torn last one), for a
/// file that is not gradmeter's, for another schema number, and for a point whose run has no line before it. A lenient
/// reader throws only if the file cannot be read or has no run at all. Cost: memory for the points, and for one line of
/// the file.
ResultFile read_results(const std::filesystem::path&, Reading = Reading::strict, Samples = Samples::kept);
/// Parses text as if it were the file called `label` (the fuzz target).
ResultFile parse_results(std::string_view text, const std::string& label, Reading = Reading::strict);

enum class OpenMode { create, overwrite, resume };

/// Appends lines to a result file. When `append` returns, the kernel has accepted the line; the file is synchronised
/// with the disk at most once a second, and at the end. If a write fails with an error that may be temporary, as on a
/// network file system, the write is repeated for up to a minute. Before each line the writer checks what has become of
/// the file. If the file was renamed, the writer goes on and reports the new name. If it was removed, it is created
/// again with all lines. If it was cut short, that is an error. `create` refuses an existing file (the UsageError names
/// --force and --resume); `resume` drops a torn last line first. Errors: UsageError if the file cannot be opened, or
/// another job is writing it; BackendError if a write fails, or if written lines have disappeared.
class ResultWriter {
 public:
  ResultWriter(const std::filesystem::path&, OpenMode);
  /// Closes the file; errors are ignored.
  ~ResultWriter();
  ResultWriter(const ResultWriter&) = delete;
  ResultWriter& operator=(const ResultWriter&) = delete;
  void append(const RunInfo&);
  void append(const Point&);
  void append(const RunPlan&);
  void append(const RunEnd&);
  /// Appends the end of a run whose process is about to be killed. Any thread may call it. Writes nothing if another
  /// line is still being written after 0.2 s.
  void append_at_once(const RunEnd&) noexcept;
  /// Waits until all lines are on the disk, and closes the file. Errors: BackendError if that fails.
  void finish();
  const std::filesystem::path& path() const { return path_; }
  /// True if the last line could not be written. A part of it may be in the file, so nothing should be appended to it.
  bool failed() const { return failed_; }

 private:
  const std::string& run_id() const;  ///< Errors: logic_error before the run's own line
  void write_line(const std::string&);
  void write_with_retries(const std::string& text);
  void check_path();
  void restore();
  void sync(bool always);
  std::filesystem::path path_;
  int file_ = -1;
  bool is_stream_ = false;  ///< a pipe or a device, which keeps nothing
  bool failed_ = false;
  std::uintmax_t size_ = 0;  ///< size of the file after the last line [bytes]; a smaller file was cut short
  std::chrono::steady_clock::time_point synced_{};
  std::timed_mutex writing_;
  std::string run_id_;
};

/// The conditions in which two runs differ, in words: "commit 1a2b (now 3c4d)", "environment OMPI_MCA_btl tcp (now not
/// set)". Conditions are machine (fingerprint), version, commit, MPI, libraries, binding, and the recorded environment
/// except the numbers of batch jobs. A condition that is unknown in one run counts as equal. If the result is empty,
/// points of both runs are comparable.
std::vector<std::string> differing_conditions(const RunInfo& then, const RunInfo& now);

/// Points of earlier runs that need not be measured again: of each key the last point, if its status is ok, unsupported
/// or skipped (failed, wrong and mistrusted points are measured again). Runs count only if they were made on the
/// machine of `now` and, unless `any` is true, under conditions that do not differ (`differing_conditions`).
struct FinishedPoints {
  std::map<std::string, Point> points;  ///< by Factors::key()
  /// The number of the experiment's points from runs that do not count, by the first condition in which the run
  /// differs.
  std::map<std::string, std::size_t> differently;
};
FinishedPoints finished_points(const ResultFile&, const RunInfo& now, const std::string& experiment, bool any);

// Follows a result file that another process may be writing.

/// The state of the lock that a ResultWriter holds on its file. unknown: the file system has no locks, or there is no
/// file. `none` means little on a network file system, since some of these do not show the locks of other machines.
enum class WriterLock : std::uint8_t { held, none, unknown };
/// Takes the lock for a moment to see whether it is free. A writer that starts in this moment waits until it is.
WriterLock writer_lock(const std::filesystem::path&);

/// Reads a growing result file in pieces: each `look` continues where the last one ended.
class ResultFollower {
 public:
  explicit ResultFollower(std::filesystem::path);
  ~ResultFollower();
  ResultFollower(const ResultFollower&) = delete;
  ResultFollower& operator=(const ResultFollower&) = delete;

  /// The change of the file since the last look. replaced: the path now names another file, or the file was cut
  /// short, so that `file` begins anew. absent: the file is missing, or cannot be read now (`problem` says why); the
  /// points read so far stay.
  enum class Change : std::uint8_t { none, grown, replaced, absent };
  /// Reads the lines that were added. A line without its end is left for the next look, since it is still being
  /// written; so is all that follows a zero byte, which a network file system shows for data that it has not fetched
  /// yet. Lines that cannot be used are left out. Each look opens the file again, which makes a network file system ask
  /// its server. Cost: that of the added lines. Errors: UsageError for a file that is no result file, or may not be
  /// read.
  Change look();
  /// Points without raw times.
  const ResultFile& file() const;
  const std::string& problem() const { return problem_; }
  /// The time at which the file was last written [s since 1970], by its time of modification.
  double last_growth() const { return last_growth_; }

 private:
  Change fail(int code);
  void restart();

  std::filesystem::path path_;
  std::unique_ptr<detail::FileReader> reader_;
  std::string problem_, head_;  ///< head_: the file's first bytes, to tell another file of the same name apart
  std::uint64_t device_ = 0, inode_ = 0, read_ = 0;
  double last_growth_ = 0;
};

}  // namespace gradmeter::core
