// SPDX-License-Identifier: Apache-2.0
// What a command says below its tables: how many points there are, what they answer, and what to run next.
#pragma once
#include <functional>
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

/// Points by what became of them: one that is unsupported was not measured.
class PointCounts {
 public:
  void add(const core::Point& p) { ++of_[p.status]; }
  void keep() { ++kept_; }
  /// "3 points measured, 0 kept, 2 unsupported".
  std::string text() const;

 private:
  std::map<core::Status, std::size_t> of_;
  std::size_t kept_ = 0;
};

/// A line for each of up to three findings: what answers the command's question, the surest first, then what spoils the
/// figures; and "next: COMMAND", with this command's ranks. `answer`: where the command has a finding of its own.
/// file: the result file; empty: none.
std::string closing(std::span<const core::Point>, const Invocation&, const std::string& file,
                    std::optional<analysis::Finding> answer = {});

/// A command as it can be typed: started with as many ranks as this one, where it needs ranks and does not say.
std::string with_ranks(const std::string& command, const Invocation&);

// The output of rows: at once for programs, as tables at the end for people, and to the result file.

enum class Format { table, csv, json };
/// --csv, --json, --wide and --legend, of which tables ask for the latter two themselves.
void add_format_flags(FlagList&);
/// Errors: UsageError when both --csv and --json are given.
Format read_format(const Flags&);

/// How one experiment's points are shown.
struct RowPrinters {
  /// All of them, when the last is there; empty: nothing is printed then.
  std::function<std::string(std::span<const core::Point>, std::size_t width)> tables;
  const report::CsvColumns& csv;
  std::string (*live)(const core::Point&) = nullptr;  ///< a point's line as soon as it is there; null: none
};

/// On rank 0. `writer` may be null.
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

  /// The head line of CSV or JSON; tables have theirs elsewhere.
  void head(const core::RunInfo&) const;
  /// Rows of a sweep are shown as they come, and new ones written.
  RowListener listener();
  void finish();
  /// Below the legend: the closing of the points, and what the result file got. Only of tables.
  void close(const Invocation&, std::optional<analysis::Finding> answer = {}) const;

  std::span<const core::Point> points() const { return points_; }
  std::size_t count() const { return points_.size(); }
  const PointCounts& counts() const { return counts_; }

 private:
  void show(const core::Point&);
  /// Where no terminal shows how far the run is: a line of standard error for each point, since pipes and logs of
  /// schedulers have no other sign of life, and standard output has results only.
  void say(const std::string& text);
  std::string time_left() const;

  Format format_;
  RowPrinters printers_;
  std::size_t width_;  ///< of tables
  std::string run_id_;
  core::ResultWriter* writer_;
  runtime::Progress& progress_;
  std::vector<core::Point> points_;
  PointCounts counts_;
  std::size_t planned_ = 0, kept_ = 0;  ///< points of the plan, 0 where it is unknown; shown ones of earlier runs
  bool begun_ = false;                  ///< it was said what is measured first
  double begin_ = runtime::host_clock();
};

// The course of every command that measures: its device, its result file, its rows as they come, its tables, what it
// concludes, and its exit code. A command hands over what is its own.

/// Collective over the invocation's world. This rank's session, which computes on what `--device` names where the
/// command has that flag.
std::unique_ptr<Session> open_session(const Flags&, const Invocation&);

/// Who measures.
struct Measurer {
  const core::RunInfo& info;
  const runtime::Communicator* ranks = nullptr;  ///< null: this process alone
  const runtime::Device& device;
  std::string device_note = {};  ///< what a reader of its rows must know of the device; empty: nothing
  bool is_root() const { return !ranks || ranks->rank() == 0; }
};
/// ranks: null for all of the session's.
Measurer measurer(const Session&, const runtime::Communicator* ranks = nullptr);

/// What is a command's own in the course. Functions are called on rank 0 only, but for `measure`.
struct Measuring {
  std::string experiment;  ///< of the rows that --resume keeps
  std::size_t points = 0;  ///< for the line of progress; 0: unknown
  RowPrinters printers;
  bool can_resume = true;            ///< for the sentence of an interrupted run
  std::function<void()> check = {};  ///< before the result file is opened. Errors: UsageError of one line
  std::function<void()> head = {};   ///< prints what stands above the tables
  std::function<std::size_t(const FinishedRows&, const RowListener&)> measure;  ///< gives the wrong points
  std::function<std::string(std::span<const core::Point>)> legend = {};         ///< below the tables
  /// The command's own finding, in place of those of analysis::findings.
  std::function<std::optional<analysis::Finding>(std::span<const core::Point>)> answer = {};
  std::string_view of_wrong = "gave wrong results: their times mean nothing";
  /// The last word, and the exit code: after a run that is not wrong.
  std::function<core::ExitCode(std::span<const core::Point>)> end = {};
};

/// Collective over the measurer's ranks. Gives the exit code, the same on all of them.
/// Errors: those of its parts; core::Interrupted after the rows so far were shown.
int measure(const Measurer&, const Flags&, const Invocation&, const Measuring&);

}  // namespace gradmeter::bench
