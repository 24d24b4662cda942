// SPDX-License-Identifier: Apache-2.0
// gradmeter report: result files as a page, pictures, text, CSV or Markdown. One process.
#include <cstdio>
#include <map>
#include <utility>

#include "analysis/comparison.hpp"
#include "analysis/findings.hpp"
#include "bench/allreduce/allreduce.hpp"
#include "bench/codecs/codecs.hpp"
#include "bench/engine/flags.hpp"
#include "bench/infer/infer.hpp"
#include "bench/kernels/kernels.hpp"
#include "bench/links/links.hpp"
#include "bench/replay/replay.hpp"
#include "bench/scale/scale.hpp"
#include "bench/train/train.hpp"
#include "cli/commands.hpp"
#include "cli/result_input.hpp"
#include "core/error.hpp"
#include "core/format.hpp"
#include "core/print.hpp"
#include "report/page/charts.hpp"
#include "report/page/page.hpp"

namespace gradmeter::cli {
namespace {

using core::UsageError;

FlagList describe_report() {
  FlagList flags("Flags", 110);
  add_switch(flags, "help,h", "this text");
  add_text(flags, "out,o", "", "file of the page; default: report.html, if no other output is asked for");
  add_text(flags, "csv", "", "every point and number as CSV in this file, - for standard output");
  add_switch(flags, "text", "the tables that the measuring commands print, on standard output");
  add_text(flags, "markdown", "", "findings and tables in this file, - for standard output: for a pull request");
  add_text(flags, "findings", "", "the findings as JSON lines in this file, - for standard output: for programs");
  add_text(flags, "png", "", "each chart as NAME.png in this folder, without a browser");
  add_text(flags, "svg", "", "each chart as NAME.svg in this folder, without a browser");
  add_switch(flags, "lenient", "leave out lines that cannot be read, and say which");
  add_wide_flag(flags);
  return flags;
}

/// Compares each further side with the first; a side without points in common with it is named on standard error.
std::vector<analysis::Comparison> comparisons_of(const std::vector<analysis::Side>& sides) {
  std::vector<analysis::Comparison> out;
  constexpr double tolerance = 0.05;
  for (std::size_t i = 1; i < sides.size(); ++i) {
    try {
      out.push_back(analysis::compare(sides[0], sides[i], {}, tolerance));
    } catch (const UsageError& e) {
      core::print(stderr, "not compared: {}\n", e.what());
    }
  }
  return out;
}

/// The tables that the measuring commands print.
std::string tables(const std::vector<analysis::Side>& sides, std::size_t width) {
  std::map<std::string, std::vector<core::Point>> points;
  for (const auto& side : sides)
    for (const auto& run : side.runs)
      for (const auto& p : run.points) points[p.experiment].push_back(p);
  std::string out;
  for (const auto& [experiment, print] : {std::pair{"scale", &scale_tables},
                                          {"allreduce", &collective_tables},
                                          {"kernels", &kernel_tables},
                                          {"codecs", &codec_tables},
                                          {"links", &link_tables},
                                          {"soak", &soak_tables},
                                          {"infer", &infer_tables},
                                          {"replay", &replay_tables}}) {
    if (const auto found = points.find(experiment); found != points.end()) out += print(found->second, width) + "\n";
  }
  if (const auto found = points.find("train"); found != points.end()) {
    out += train_header();
    for (const auto& p : found->second) out += train_row(p);
  }
  return out;
}

/// Writes each finding of each side as a line of JSON. With several sides a line names its side.
std::string finding_lines(const std::vector<analysis::Side>& sides,
                          const std::vector<std::vector<analysis::Finding>>& findings) {
  std::string out;
  for (std::size_t i = 0; i < sides.size(); ++i) {
    for (const auto& finding : findings[i]) {
      core::Json line = analysis::to_json(finding);
      if (sides.size() > 1) line["side"] = sides[i].name;
      out += core::json_text(line) + "\n";
    }
  }
  return out;
}

void print_picture_count(const std::vector<std::filesystem::path>& pictures, const std::string& folder) {
  core::print("{} pictures in {}\n", pictures.size(), core::printable(folder));
}

int make_report(const Flags& f) {
  const auto reading = f.on("lenient") ? core::Reading::lenient : core::Reading::strict;
  refuse_result_files(f, {"out", "csv", "markdown", "findings"});
  refuse_too_many(f.words());
  std::vector<analysis::Side> sides;
  for (const auto& word : f.words()) sides.push_back({core::printable(word), runs_of(word, reading)});
  analysis::require_each_launch_once(sides);
  report::name_by_file(sides);
  const auto comparisons = comparisons_of(sides);
  const bool draws = f.has("png") || f.has("svg");
  const bool page = f.has("out") || !(f.has("csv") || f.on("text") || f.has("markdown") || f.has("findings") || draws);
  if (f.has("csv")) write_text(f.text("csv"), report::rows_csv(report::make_separate_rows(sides)));
  if (f.on("text")) core::print("{}", tables(sides, table_width(f)));
  // The findings and the rows of a large file each take as much memory as its points, so the findings are freed before
  // the rows are made.
  report::ReportText summary;
  std::string lines;
  if (page || f.has("markdown") || f.has("findings")) {
    std::vector<std::vector<analysis::Finding>> findings;
    for (const auto& side : sides) findings.push_back(analysis::findings(side.runs));
    summary = report::summarise_findings(sides, findings, comparisons);
    if (f.has("findings")) lines = finding_lines(sides, findings);
  }
  report::PageTable rows;
  if (page || draws || f.has("markdown")) {
    rows = report::make_rows(sides);
    for (const auto& c : comparisons) report::add_comparison(rows, c);
  }
  if (f.has("markdown")) write_text(f.text("markdown"), report::markdown(rows, summary));
  if (f.has("findings")) write_text(f.text("findings"), lines);
  for (const char* format : {"png", "svg"})
    if (f.has(format)) print_picture_count(report::write_pictures(rows, f.text(format), format), f.text(format));
  if (page) {
    const std::string path = f.has("out") ? f.text("out") : "report.html";
    write_text(path, [&](std::ostream& out) { report::write_html_page(rows, summary, sides, out); });
    if (path != "-") core::print("{}\n", core::printable(path));
  }
  return static_cast<int>(core::ExitCode::done);
}

Usage report_usage() {
  return {.flags = describe_report(),
          .about =
              "gradmeter report FILE...: result files as one page that works without a network\n"
              "\n"
              "gradmeter report results/my.jsonl -o my.html --png pictures\n"
              "With several files the page has their curves side by side, and their ratios to the first.",
          .words = "files"};
}

int run_report_command(const Flags& flags, const Invocation&) {
  if (flags.words().empty()) throw UsageError("report: name result files; see gradmeter report --help");
  return make_report(flags);
}

}  // namespace

extern const Command report_command{
    .name = "report",
    .summary = "result files as one page of charts and findings, as pictures, text, CSV, Markdown",
    .with_ranks = false,
    .usage = report_usage,
    .run = run_report_command};

}  // namespace gradmeter::cli
