#include "cli/row_output.hpp"

#include <cstdio>

#include "cli/terminal.hpp"
#include "core/error.hpp"
#include "core/format.hpp"
#include "core/print.hpp"

namespace gradmeter::cli {

void add_format_flags(options::options_description& d) {
  add_switch(d, "csv", "one line a point, instead of the tables");
  add_switch(d, "json", "one line of JSON a point as in the result file, instead of the tables");
  add_wide_flag(d);
}

Format read_format(const Flags& f) {
  if (f.on("csv") && f.on("json")) throw core::UsageError("give one of --csv and --json");
  return f.on("csv") ? Format::csv : f.on("json") ? Format::json : Format::table;
}

void RowOutput::head(const core::RunInfo& info) const {
  if (format_ == Format::json) core::print("{}\n", core::to_json_line(info));
  if (format_ == Format::csv) core::print("{}", printers_.csv.header());
  std::fflush(stdout);
}

bench::RowListener RowOutput::listener() {
  return {.planned =
              [this](std::size_t points, std::size_t kept) {
                if (writer_) writer_->append(core::make_plan(points, kept));
              },
          .measured =
              [this](const core::Point& p) {
                if (writer_) writer_->append(p);
                counts_.add(p);
                show(p);
              },
          .kept =
              [this](const core::Point& p) {
                counts_.keep();
                show(p);
              },
          .progress = [this](const std::string& now) { progress_.update(points_.size(), now); }};
}

void RowOutput::finish() {
  progress_.finish();
  if (format_ == Format::table) core::print("{}", printers_.tables(points_, width_));
}

void RowOutput::close(const Invocation& invocation, std::optional<analysis::Finding> answer) const {
  if (format_ != Format::table) return;
  const std::string file = writer_ ? writer_->path().string() : "";
  core::print("{}", closing(points_, invocation, file, std::move(answer)));
  if (writer_) core::print("\n{}; {}\n", counts_.text(), file);
}

void RowOutput::show(const core::Point& p) {
  points_.push_back(p);
  progress_.update(points_.size(), "");
  if (format_ == Format::json) core::print("{}\n", core::to_json_line(p, run_id_));
  if (format_ == Format::csv) core::print("{}", printers_.csv.row(p));
  if (format_ != Format::table) std::fflush(stdout);
}

}  // namespace gradmeter::cli
