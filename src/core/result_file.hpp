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

/// The number of points that a run means to measure, written before the first.
struct RunPlan {
  std::int64_t points = 0;
  std::int64_t kept = 0;  ///< number of further points, taken from an earlier run (--resume)
};
RunPlan make_plan(std::size_t points, std::size_t kept);
struct RunEnd {
  std::string time;       ///< in the format of RunInfo::time
  std::int64_t exit = 0;  ///< the program's exit code
  std::string reason;     ///< its error message; empty: none
};

/// `plan` is the sum if a run wrote several plans. `end` is empty in files of earlier programs and of killed runs.
struct Run {
  RunInfo info;
  std::vector<Point> points;
  std::optional<RunPlan> plan = {};
  std::optional<RunEnd> end = {};
};

/// The content of a whole file. `note` says that a torn last line was dropped; else it is empty. `left_out` lists the
/// lines that a lenient reader could not use, as "FILE:LINE: why".
struct ResultFile {
  std::vector<Run> runs;
  std::string note;
  std::vector<std::string> left_out;
};

/// lenient: lines that cannot be used are left out, and lines of a newer schema are read as far as their keys are
/// known.
enum class Reading { strict, lenient };
/// Whether the raw times of each point, which are most of a file, are kept.
enum class Samples { kept, left_out };

/// Each function gives one line without its newline. Numbers that are not finite become null, and the names of their
/// keys are listed in "nonfinite".
std::string to_json_line(const RunInfo&);
std::string to_json_line(const Point&, const std::string& run_id);
std::string to_json_line(const RunPlan&, const std::string& run_id);
std::string to_json_line(const RunEnd&, const std::string& run_id);

/// Errors: UsageError "FILE:LINE: what is wrong; what it should be" for a bad line other than a torn last one, for a
/// file that is not gradmeter's, for another schema number, for a point before its run. A lenient reader throws only if
/// the file cannot be read or has no run at all. Cost: memory for the points, and for one line of the file.
ResultFile read_results(const std::filesystem::path&, Reading = Reading::strict, Samples = Samples::kept);
/// Parses text as if it were the file called `label` (the fuzz target).
ResultFile parse_results(std::string_view text, const std::string& label, Reading = Reading::strict);

enum class OpenMode { create, overwrite, resume };

/// Appends lines, each by one write(2), which the kernel has accepted when `append` returns. The file is synchronised
/// with the disk at most once a second, and at the end. A write to a network's disk is tried again for up to a minute.
/// Before each line the open file is compared with its path. If the file was renamed, its rows are kept and the new
/// name is reported. If it was removed, it is written anew. If it was cut short, that is an error. `create` refuses an
/// existing file (UsageError names --force and --resume). `resume` drops a torn last line before it appends. Errors:
/// UsageError when the file cannot be opened, or another job has it; BackendError when a write fails, or lines that
/// were written are missing.
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
  /// Appends the end of a process that is about to be ended. Any thread may call it. It waits at most 0.2 s for a line
  /// that is being written.
  void append_at_once(const RunEnd&) noexcept;
  /// Waits until all lines are on the disk, and closes the file. Errors: BackendError if one of them is not.
  void finish();
  const std::filesystem::path& path() const { return path_; }
  /// Whether the last line could not be written. Half of it may be in the file, so nothing should follow.
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
  std::uintmax_t size_ = 0;  ///< size of the file after the last line [bytes]; if the file is smaller it was cut short
  std::chrono::steady_clock::time_point synced_{};
  std::timed_mutex writing_;
  std::string run_id_;
};

/// The conditions of a run that differ from the present ones, in words: "commit 1a2b (now 3c4d)", "environment
/// OMPI_MCA_btl tcp (now not set)". Compared are machine (fingerprint), version, commit, MPI, libraries, binding, and
/// the recorded environment except the numbers of batch jobs. Empty: points of both are comparable. A condition that is
/// unknown on one side counts as equal.
std::vector<std::string> differing_conditions(const RunInfo& then, const RunInfo& now);

/// Points of earlier runs that need not be measured again: the last one of each key, if its status is ok, unsupported
/// or skipped (failed, wrong and mistrusted points are measured again). Only runs on the machine of `now` count, and
/// unless `any` is true, only runs under the same other conditions.
struct FinishedPoints {
  std::map<std::string, Point> points;  ///< by Factors::key()
  /// number of the experiment's points that cannot be kept, by the first condition in which their run differs
  std::map<std::string, std::size_t> differently;
};
FinishedPoints finished_points(const ResultFile&, const RunInfo& now, const std::string& experiment, bool any);

// A result file that another process may be writing, read in pieces: each look continues where the last one ended.

/// The state of the lock that a ResultWriter takes. unknown: the file system has no locks, or there is no file. Only
/// some network file systems show locks of another machine: there `none` means little.
enum class WriterLock : std::uint8_t { held, none, unknown };
/// Takes the lock for a moment to see whether it is free; a writer that is just starting waits for it.
WriterLock writer_lock(const std::filesystem::path&);

class ResultFollower {
 public:
  explicit ResultFollower(std::filesystem::path);
  ~ResultFollower();
  ResultFollower(const ResultFollower&) = delete;
  ResultFollower& operator=(const ResultFollower&) = delete;

  /// What has happened to the file. replaced: another file has its name, or it was emptied, so `file` begins anew.
  /// absent: the file is missing, or cannot be read now (`problem`); the points read so far stay.
  enum class Change : std::uint8_t { none, grown, replaced, absent };
  /// Reads the whole lines that were added. Half a line is still being written, and zeros mean that a network's disk
  /// has not brought the data yet. Lines that cannot be used are left out. Opens the file anew each time, so that a
  /// network's disk asks its server. Cost: that of the added lines. Errors: UsageError for a file that is no result
  /// file, or may not be read.
  Change look();
  /// Points without raw times.
  const ResultFile& file() const;
  const std::string& problem() const { return problem_; }
  /// When the file last grew [s since 1970], by its own time stamp.
  double last_growth() const { return last_growth_; }

 private:
  Change fail(int code);
  void restart();

  std::filesystem::path path_;
  std::unique_ptr<detail::FileReader> reader_;
  std::string problem_, head_;  ///< head_: the file's first bytes, which differ in another file of the same name
  std::uint64_t device_ = 0, inode_ = 0, read_ = 0;
  double last_growth_ = 0;
};

}  // namespace gradmeter::core
