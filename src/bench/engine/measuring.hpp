// SPDX-License-Identifier: Apache-2.0
// The parts that all commands that measure share: the steps of a run, the output of rows, and the lines below their
// tables.
#pragma once
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/findings.hpp"
#include "bench/engine/command.hpp"
#include "bench/engine/flags.hpp"
#include "bench/engine/sweep.hpp"
#include "core/result.hpp"
#include "core/result_file.hpp"
#include "report/cells.hpp"
#include "runtime/clock.hpp"
#include "runtime/process/progress.hpp"

namespace gradmeter::bench {

/// Counts new points by their status, and the points kept from an earlier run.
class PointCounts {
 public:
  void add(const core::Point& p) { ++by_status_[p.status]; }
  void keep() { ++kept_; }
  /// "3 points measured, 0 kept, 2 unsupported".
  std::string text() const;

 private:
  std::map<core::Status, std::size_t> by_status_;
  std::size_t kept_ = 0;
};

/// The text below the tables. First come a few findings, each on a line of its own: those that answer the command's
/// questions, then one that makes the figures doubtful, if there is one. Last comes "next: COMMAND", the command to run
/// next (see `with_ranks`). answer: the command's own finding, used in place of the usual answers. file: the result
/// file; empty: none.
std::string closing_lines(std::span<const core::Point>, const Invocation&, const std::string& file,
                          std::optional<analysis::Finding> answer = {});

/// Returns `command` as a line that a user can type: if it is a command that runs on ranks and does not give their
/// number, it gets as many ranks as the running command has.
std::string with_ranks(const std::string& command, const Invocation&);

// The output of rows: at once for programs, as tables at the end for people, and to the result file.

enum class Format { table, csv, json };
/// Adds --csv, --json, --wide and --legend.
void add_format_flags(FlagList&);
/// Errors: UsageError when both --csv and --json are given.
Format read_format(const Flags&);

/// The ways in which one experiment's points are shown.
struct RowPrinters {
  /// The tables of all points, printed after the last point; empty: there are no tables.
  std::function<std::string(std::span<const core::Point>, std::size_t width)> tables;
  const report::CsvColumns& csv;
  /// The line of a point, printed as soon as the point is measured; null: there are no such lines.
  std::string (*live)(const core::Point&) = nullptr;
};

/// Shows rows, and writes new ones to the result file. It is used on rank 0. writer: null without a result file.
class RowOutput {
 public:
  RowOutput(Format format, const RowPrinters& printers, std::size_t width, std::string run_id,
            core::ResultWriter* writer, runtime::Progress& progress)
      : format_(format),
        printers_(printers),
        width_(width),
        run_id_(std::move(run_id)),
        writer_(writer),
        progress_(progress) {}

  /// Prints the head line of CSV or JSON.
  void head(const core::RunInfo&) const;
  /// The listener that shows a sweep's rows as they come, and writes the new ones.
  RowListener listener();
  /// Ends the progress line and prints the tables.
  void finish();
  /// Prints the last lines of a run with tables: those of `closing_lines`, and if there is a result file, its name and
  /// the numbers of points.
  void close(const Invocation&, std::optional<analysis::Finding> answer = {}) const;

  std::span<const core::Point> points() const { return points_; }
  std::size_t count() const { return points_.size(); }
  const PointCounts& counts() const { return counts_; }

 private:
  void show(const core::Point&);
  /// Prints a line about progress to standard error, but only if no terminal shows a progress line. In pipes and in
  /// logs of schedulers there is no other sign of life; standard output is for results only.
  void say(const std::string& text);
  std::optional<core::Seconds> time_left() const;

  Format format_;
  RowPrinters printers_;
  std::size_t width_;  ///< width of tables [columns]
  std::string run_id_;
  core::ResultWriter* writer_;
  runtime::Progress& progress_;
  std::vector<core::Point> points_;
  PointCounts counts_;
  std::size_t planned_ = 0;  ///< [points]; 0: unknown
  /// The times at which RowListener::progress was called last and `say` printed a line last, by the host clock [s].
  double progress_at_ = -std::numeric_limits<double>::infinity(), said_at_ = 0;
  double begin_ = runtime::host_clock();
  std::size_t measured_ = 0, rest_ = 0;  ///< [points] measured so far (shown or not); still to measure
  double measured_at_ = 0;               ///< when the last group was measured, by the host clock [s]
};

// The steps of every command that measures: device, result file, rows as they come, tables, conclusions, exit code.
// `MeasuringCommand` has the parts in which commands differ.

/// Makes this rank's session. It computes on the device that the flag --device names, if the command has that flag.
/// Collective over the invocation's world.
std::unique_ptr<Session> open_session(const Flags&, const Invocation&);

/// The ranks, or the single process, that measure, and their device.
struct MeasuringRanks {
  const core::RunInfo& info;
  const runtime::Communicator* ranks = nullptr;  ///< null: this process alone
  const runtime::Device& device;
  std::string device_note = {};  ///< what readers of rows from this device must know; empty: nothing
  bool is_root() const { return !ranks || ranks->rank() == 0; }
};
/// ranks: the ranks that measure; null: all of the session.
MeasuringRanks measuring_ranks(const Session&, const runtime::Communicator* ranks = nullptr);

/// The parts in which commands differ. All functions but `measure` are called on rank 0 only.
struct MeasuringCommand {
  std::string experiment;  ///< experiment of the rows that --resume keeps
  std::size_t points = 0;  ///< number of points, for the progress line; 0: unknown
  RowPrinters printers;
  bool can_resume = true;            ///< true: an interrupted run tells the user to go on with --resume
  std::function<void()> check = {};  ///< called before the result file is opened. Errors: UsageError of one line
  std::function<void()> head = {};   ///< prints what stands above the tables
  std::function<std::size_t(const FinishedRows&, const RowListener&)> measure;  ///< returns the number of wrong points
  std::function<std::string(std::span<const core::Point>)> legend = {};         ///< text below the tables
  /// The command's own finding, in place of those of analysis::findings.
  std::function<std::optional<analysis::Finding>(std::span<const core::Point>)> answer = {};
  /// The end of the message after a run with wrong points; the message begins with "3 of 8 points ".
  std::string_view wrong_message = "gave wrong results: their times mean nothing";
  /// Called last in a run without wrong points; returns the exit code.
  std::function<core::ExitCode(std::span<const core::Point>)> end = {};
};

/// Prints what is wrong with the rows of a finished run. Returns the exit code for wrong rows, else that for failed
/// rows, else that of `end`. wrong: the number of wrong points. It is called on rank 0 only.
int exit_code(const MeasuringCommand&, std::span<const core::Point>, std::size_t wrong);

/// Runs a command that measures. Collective over the ranks that measure. Returns the exit code, the same on all ranks.
/// Errors: those of the functions in `MeasuringCommand`; core::Interrupted, after the rows so far were shown.
int measure(const MeasuringRanks&, const Flags&, const Invocation&, const MeasuringCommand&);

}  // namespace gradmeter::bench
