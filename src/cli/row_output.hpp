// The output of rows: at once for programs, as tables at the end for people, and to the result file.
#pragma once
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bench/engine/sweep.hpp"
#include "cli/closing.hpp"
#include "cli/flags/flags.hpp"
#include "core/result_file.hpp"
#include "report/columns.hpp"
#include "runtime/process/progress.hpp"

namespace gradmeter::cli {

enum class Format { table, csv, json };
/// --csv, --json, and --wide, which tables ask for themselves.
void add_format_flags(options::options_description&);
/// Errors: UsageError when both --csv and --json are given.
Format read_format(const Flags&);

/// How one experiment's points are shown.
struct RowPrinters {
  std::string (*tables)(std::span<const core::Point>, std::size_t width);
  const report::CsvColumns& csv;
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
  bench::RowListener listener();
  void finish();
  /// Below the legend: the closing of the points, and what the result file got. Only of tables.
  void close(const Invocation&, std::optional<analysis::Finding> answer = {}) const;

  std::span<const core::Point> points() const { return points_; }
  std::size_t count() const { return points_.size(); }
  const PointCounts& counts() const { return counts_; }

 private:
  void show(const core::Point&);

  Format format_;
  RowPrinters printers_;
  std::size_t width_;  ///< of tables
  std::string run_id_;
  core::ResultWriter* writer_;
  runtime::Progress& progress_;
  std::vector<core::Point> points_;
  PointCounts counts_;
};

}  // namespace gradmeter::cli
