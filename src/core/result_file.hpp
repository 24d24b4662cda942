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

/// One run in a file. If the run wrote several plans, `plan` is their sum. `end` is empty if the run was killed or
/// still runs, or if an earlier version of gradmeter, which wrote no end, wrote the file.
struct Run {
  RunInfo info;
  std::vector<Point> points;
  std::optional<RunPlan> plan = {};
  std::optional<RunEnd> end = {};
};

/// The content of a whole file. If the last line is torn (incomplete, because the run was killed), it is dropped, and
/// `note` says so; else `note` is empty. `left_out` lists the lines that a lenient reader could not use, as "FILE:LINE:
/// why".
struct ResultFile {
  std::vector<Run> runs;
  std::string note;
  std::vector<std::string> left_out;
};

/// strict: a line that cannot be used is an error. lenient: such lines are left out, and from lines of a newer schema
/// only the known keys are read.
enum class Reading { strict, lenient };
/// Whether a reader keeps the raw times of the points in memory. They are the largest part of a file.
enum class RawTimes { kept, left_out };

/// Each function returns one line of the file, without its newline. Numbers that are not finite become null, and their
/// places ("metrics.time_s.p99") are listed in "nonfinite".
std::string to_json_line(const RunInfo&);
std::string to_json_line(const Point&, const std::string& run_id);
std::string to_json_line(const RunPlan&, const std::string& run_id);
std::string to_json_line(const RunEnd&, const std::string& run_id);

/// Reads a result file. Errors: UsageError "FILE:LINE: what is wrong; what it should be" for a bad line (except a torn
/// last one), for a file that is not a result file, for another schema number, and for a point before the line of its
/// run. A lenient reader throws only if the file cannot be read or has no run at all. Cost: memory for the points, and
/// for one line of the file.
ResultFile read_results(const std::filesystem::path&, Reading = Reading::strict, RawTimes = RawTimes::kept);
/// Parses `text` as the content of a file, which errors call `label`. The fuzz tests call this function.
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
  /// Appends the end of a run whose process is about to end. Any thread may call it. Writes nothing if another thread
  /// is still writing a line after 0.2 s.
  void append_at_once(const RunEnd&) noexcept;
  /// Waits until all lines are on the disk, and closes the file. Errors: BackendError if that fails.
  void finish();
  const std::filesystem::path& path() const { return path_; }
  /// True if the last line could not be written. A part of that line may be in the file, so no further line should be
  /// appended.
  bool failed() const { return failed_; }

 private:
  const std::string& run_id() const;  ///< Errors: logic_error before the run's own line
  void write_line(const std::string&);
  void write_with_retries(const std::string& text);
  void follow_or_restore_file();
  void restore();
  void sync(bool always);
  std::filesystem::path path_;
  int file_ = -1;
  bool is_stream_ = false;  ///< a pipe or a device, which keeps nothing
  bool failed_ = false;
  std::uintmax_t size_ = 0;  ///< expected size of the file [bytes]; a smaller file was cut short
  std::chrono::steady_clock::time_point synced_{};
  std::timed_mutex write_mutex_;
  std::string run_id_;
};

/// The conditions, by name, on which the numbers of a run depend besides the factors: machine (fingerprint), version,
/// commit, MPI, the mechanism by which MPI moves a message between processes with a single copy (CMA, for example),
/// libraries, binding, and the recorded environment variables except the numbers of batch jobs. A variable or library
/// that the run does not have is not among them.
using Conditions = std::map<std::string, std::string>;
Conditions conditions_of(const RunInfo&);

/// The conditions in which two runs differ, as text: "commit 1a2b (now 3c4d)", "environment OMPI_MCA_btl tcp (now not
/// set)". A condition that is empty (unknown) in one run counts as equal. If the result is empty, points of both
/// runs are comparable.
std::vector<std::string> differing_conditions(const RunInfo& then, const RunInfo& now);

/// Erases each skipped point that a later run of the same file, made with --resume, has as well. Only the later point
/// is then left.
void erase_superseded_points(std::vector<Run>& runs_of_file);

/// The points of earlier runs that the present run (`now`) need not measure again: for each key the last point, if its
/// status is ok or unsupported. (Points that failed, or are wrong or mistrusted, are measured again, and so are skipped
/// ones, since there may be more time or memory.) Runs count only if they were made on the machine of the present run
/// and, unless `any_conditions` is true, under conditions that do not differ (`differing_conditions`).
struct FinishedPoints {
  std::map<std::string, Point> points;  ///< by Factors::key()
  /// Number of the experiment's points in runs that do not count, by the first condition in which such a run differs
  /// from the present run.
  std::map<std::string, std::size_t> not_comparable;
};
FinishedPoints finished_points(const ResultFile&, const RunInfo& now, const std::string& experiment,
                               bool any_conditions);

// Follows a result file that another process may be writing.

/// The state of the lock that a ResultWriter holds on its file. unknown: the file system has no locks, or the file
/// cannot be opened. `none` means little on a network file system, since some of these do not show the locks of other
/// machines.
enum class WriterLock : std::uint8_t { held, none, unknown };
/// Takes the lock for a moment to find out whether it is free. A writer that starts at this moment waits for it.
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
  /// written; so is everything from the first zero byte on, since a network file system shows zeros for data that it
  /// has not fetched yet. Lines that cannot be used are left out. Each look opens the file again, so that a network
  /// file system asks its server for new data. Cost: that of the added lines. Errors: UsageError for a file that is no
  /// result file, or may not be read.
  Change look();
  /// The content read so far, without raw times.
  const ResultFile& file() const;
  const std::string& problem() const { return problem_; }
  /// The file's time of modification at the last look [s since 1970].
  double last_growth() const { return last_growth_; }

 private:
  Change fail(int code);
  void restart();

  std::filesystem::path path_;
  std::unique_ptr<detail::FileReader> reader_;
  std::string problem_, head_;  ///< head_: the file's first bytes, by which another file of the same name is noticed
  std::uint64_t device_ = 0, inode_ = 0, read_ = 0;  ///< read_: bytes of the file read so far
  double last_growth_ = 0;
};

}  // namespace gradmeter::core
