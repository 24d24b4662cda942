// SPDX-License-Identifier: Apache-2.0
// gradmeter compare: compares result files point by point, with a 95 % interval over launches. One process.
#include <cstdio>
#include <functional>

#include "analysis/comparison.hpp"
#include "analysis/findings.hpp"
#include "analysis/launches.hpp"
#include "bench/engine/flags.hpp"
#include "cli/commands.hpp"
#include "cli/result_input.hpp"
#include "core/error.hpp"
#include "core/format.hpp"
#include "core/print.hpp"
#include "report/comparison_table.hpp"

namespace gradmeter::cli {
namespace {

using core::UsageError;
namespace fs = std::filesystem;

constexpr std::size_t points_shown = 12;

FlagList describe_compare() {
  FlagList flags("Flags", 110);
  add_switch(flags, "help,h", "this text");
  add_text(flags, "by", "", "compare the values of this factor across all files: interconnect, precision, codec, ...");
  add_text(flags, "baseline", "",
           "with --by: the value with which the others are compared; default: the first in the files");
  add_text(flags, "metric", "time_s",
           "what is compared (gradmeter list metrics); a ratio of times is inverted, so that above 1 is faster");
  add_text(flags, "where", "", "only points with these values: ranks=4,precision=bf16");
  add_text(flags, "ignore", "", "factors that may differ between compared points: transport,threads");
  add_text(flags, "tolerance", "0.05",
           "the verdict is 'same' if the ratio's interval lies between 1 / (1 + this) and 1 + this");
  add_text(flags, "fail-below", "",
           "exit 1 unless the whole interval of every point is at or above this ratio; missing points fail");
  add_text(flags, "junit", "", "with --fail-below: the outcome of each point for a CI system, as XML in this file");
  add_text(flags, "csv", "", "all points as CSV in this file, - for standard output instead of tables");
  add_text(flags, "findings", "", "the verdicts as JSON lines in this file, - for standard output instead of tables");
  add_text(flags, "history", "",
           "compare with past launches of this machine in this directory; the result is then added to them, unless "
           "--fail-below failed");
  add_text(flags, "last", "10", "with --history: maximum number of past launches");
  add_switch(flags, "all", "show every point, not only the most important ones");
  add_switch(flags, "lenient", "leave out lines that cannot be read, and say which");
  add_wide_flag(flags);
  add_legend_flag(flags);
  return flags;
}

struct CompareOptions {
  std::vector<std::string> words;  ///< the arguments that name the sides
  std::optional<core::Factor> by;
  std::string baseline, junit, csv, findings, history;
  analysis::PointSelection selection;
  double tolerance = 0.05;
  report::Legend legend = report::Legend::brief;
  std::optional<double> bar;  ///< --fail-below: the least ratio that passes
  std::size_t last = 10;      ///< the most past launches that --history compares with
  core::Reading reading = core::Reading::strict;
  bool all = false;
  std::string repeated;  ///< the flags that choose what is compared, as they were given: " --by codec --where ranks=4"
  /// True if CSV or JSON goes to standard output, which then has no tables and no sentences.
  bool is_for_programs() const { return csv == "-" || findings == "-"; }
};

std::map<core::Factor, std::string> read_where(const Flags& flags) {
  std::map<core::Factor, std::string> out;
  if (!flags.has("where")) return out;
  std::string text = flags.text("where");
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const std::string item = text.substr(begin, end - begin);
    const std::size_t equals = item.find('=');
    if (equals == std::string::npos)
      throw UsageError(fmt::format("--where {}: write FACTOR=VALUE, as in ranks=4", item));
    out[analysis::find_factor(item.substr(0, equals))] = item.substr(equals + 1);
    begin = end + 1;
  }
  return out;
}

void refuse_alone(const Flags& flags, const std::string& flag, const std::string& other) {
  if (flags.given(flag) && !flags.has(other)) throw UsageError(fmt::format("--{} needs --{}", flag, other));
}

CompareOptions read_compare_options(const Flags& flags) {
  refuse_alone(flags, "baseline", "by");
  refuse_alone(flags, "junit", "fail-below");
  refuse_alone(flags, "last", "history");
  if (flags.has("by") && flags.has("history"))
    throw UsageError("--by and --history are two ways of naming the sides; give one");
  CompareOptions options;
  options.words = flags.words();
  if (flags.has("by")) options.by = analysis::find_factor(flags.text("by"));
  for (auto [name, to] : {std::pair{"baseline", &options.baseline},
                          {"junit", &options.junit},
                          {"csv", &options.csv},
                          {"findings", &options.findings},
                          {"history", &options.history}}) {
    if (flags.has(name)) *to = flags.text(name);
  }
  options.selection.metric = analysis::find_metric(flags.text("metric"));
  analysis::better_direction(options.selection.metric);
  options.selection.only = read_where(flags);
  if (flags.has("ignore")) {
    for (const auto& name : split_list("--ignore", flags.text("ignore")))
      options.selection.ignored.push_back(analysis::find_factor(name));
  }
  if (options.by) options.selection.ignored.push_back(*options.by);
  options.tolerance = parse_number("--tolerance", flags.text("tolerance"), 1e-6, 1);
  options.legend = read_legend(flags);
  if (flags.has("fail-below")) options.bar = parse_number("--fail-below", flags.text("fail-below"), 1e-6, 1e6);
  options.last = parse_count("--last", flags.text("last"), 1, 10000);
  if (flags.on("lenient")) options.reading = core::Reading::lenient;
  options.all = flags.on("all");
  for (const char* name : {"by", "baseline", "metric", "where", "ignore", "tolerance", "history", "last"})
    if (flags.given(name)) options.repeated += fmt::format(" --{} {}", name, core::shell_word(flags.text(name)));
  if (flags.on("lenient")) options.repeated += " --lenient";
  return options;
}

std::vector<core::Run> all_runs(const CompareOptions& options) {
  std::vector<core::Run> out;
  for (const auto& word : options.words) std::ranges::move(runs_of(word, options.reading), std::back_inserter(out));
  return out;
}

/// The sides to compare; all others are compared with the first.
std::vector<analysis::Side> read_sides(const CompareOptions& options) {
  std::vector<analysis::Side> sides;
  if (options.by) {
    const analysis::Side pooled{"the files", all_runs(options)};
    analysis::require_each_launch_once({&pooled, 1});
    return analysis::sides_by(*options.by, pooled.runs, options.baseline);
  }
  for (const auto& word : options.words) sides.push_back({core::printable(word), runs_of(word, options.reading)});
  analysis::require_each_launch_once(sides);
  return sides;
}

/// Prints which sides are compared, and how they differ beside the factors.
void print_conditions(const CompareOptions& options, const analysis::Side& a, const analysis::Side& b) {
  if (options.by) {
    core::print("{}: {} against {}\n", core::name(*options.by), b.name, a.name);
  } else {
    core::print("first:  {} ({} launches)\nsecond: {} ({} launches)\n", a.name, a.runs.size(), b.name, b.runs.size());
  }
  for (const auto& line : analysis::differing_conditions(a, b)) core::print("differs: {}\n", line);
  if (analysis::launched_in_two_blocks(a, b)) {
    core::print(
        "note: all launches of one side began before all of the other: a drift of the machine would look like a "
        "difference; take them in turn\n");
  }
}

void print_comparison(const CompareOptions& options, const analysis::Comparison& c, std::size_t width) {
  core::print("{}\n{}\n", report::comparison_summary(c),
              report::comparison_table(c, options.all ? c.points.size() : points_shown, width));
}

/// Prints the points whose ratio may be below the bar, the first `points_shown` of them, and returns how many there
/// are.
std::size_t print_failures(const std::vector<analysis::Comparison>& comparisons, double bar) {
  std::size_t failures = 0;
  for (const auto& c : comparisons) {
    for (const auto& point : c.points) {
      const auto why = analysis::why_below(point, bar);
      if (!why || ++failures > points_shown) continue;
      core::print(stderr, "gradmeter: below {}: {}: {}\n", bar, report::comparison_label(c, point), *why);
    }
  }
  if (failures > points_shown) core::print(stderr, "gradmeter: and {} points more\n", failures - points_shown);
  return failures;
}

int finish(const CompareOptions& options, const std::vector<analysis::Comparison>& comparisons) {
  if (!options.csv.empty()) {
    std::string text;
    for (const auto& c : comparisons) text += report::comparison_csv(c);
    write_text(options.csv, text);
  }
  if (!options.findings.empty()) {
    std::string text;
    for (const auto& c : comparisons) text += core::json_text(analysis::to_json(report::comparison_verdict(c))) + "\n";
    write_text(options.findings, text);
  }
  if (!options.bar) return static_cast<int>(core::ExitCode::done);
  if (!options.junit.empty()) write_text(options.junit, report::comparison_junit(comparisons, *options.bar));
  const bool passed = print_failures(comparisons, *options.bar) == 0;
  return static_cast<int>(passed ? core::ExitCode::done : core::ExitCode::missed_target);
}

/// The command to run next: the report if points differ; else more launches if they would decide a point; else the
/// table of all points. `last_side`: the side whose launches would be repeated.
std::string next_command(const CompareOptions& options, const analysis::Side& last_side,
                         const std::vector<analysis::Comparison>& comparisons) {
  std::int64_t needed = 0;
  bool differs = false;
  for (const auto& c : comparisons) {
    differs = differs || c.count(analysis::Verdict::slower) + c.count(analysis::Verdict::faster) > 0;
    for (const auto& p : c.points) {
      if (p.verdict != analysis::Verdict::undecided) continue;
      const bool is_single = p.a.size() < 2 || p.b.size() < 2;
      needed = std::max(needed, is_single ? 5 : p.launches_needed - static_cast<std::int64_t>(p.b.size()));
    }
  }
  std::string files;
  for (const auto& word : options.words) files += " " + core::shell_word(word);
  if (differs) return fmt::format("gradmeter report{} -o report.html", files);
  std::string again = analysis::repeat_command(last_side.runs.front().info, needed);
  if (needed > 0 && !again.empty()) return again;
  return fmt::format("gradmeter compare{}{} --all", files, options.repeated);
}

int compare_sides(const CompareOptions& options, const std::vector<analysis::Side>& sides, std::size_t width) {
  std::vector<analysis::Comparison> comparisons;
  for (std::size_t i = 1; i < sides.size(); ++i) {
    comparisons.push_back(analysis::compare(sides.front(), sides[i], options.selection, options.tolerance));
    if (options.is_for_programs()) continue;
    print_conditions(options, sides.front(), sides[i]);
    print_comparison(options, comparisons.back(), width);
  }
  if (!options.is_for_programs()) {
    core::print("{}\n", report::comparison_legend(options.tolerance, options.legend));
    for (const auto& c : comparisons) core::print("{}\n", report::comparison_verdict(c).sentence);
    core::print("next: {}\n", next_command(options, sides.back(), comparisons));
  }
  return finish(options, comparisons);
}

void keep_files(const CompareOptions& options) {
  for (const auto& word : options.words) {
    for (const auto& path : files_of(word)) {
      const auto runs = core::read_results(path, options.reading).runs;
      core::print(stderr, "kept: {}\n", core::printable(analysis::archive(path, runs, options.history).string()));
    }
  }
}

/// Says that a directory has no launches but those of the result. They meet no bar, since they were not compared.
int refuse_own_past(const CompareOptions& options) {
  const std::string text = fmt::format(
      "{} has no launch of this machine but those of this result, so that nothing is compared; name files with newer "
      "launches",
      core::printable(options.history));
  if (!options.bar) {
    core::print("{}\n", text);
    return static_cast<int>(core::ExitCode::done);
  }
  core::print(stderr, "gradmeter: {}\n", text);
  return static_cast<int>(core::ExitCode::missed_target);
}

void print_history(const CompareOptions& options, const analysis::Side& result, const analysis::History& h) {
  if (h.now.runs.size() < result.runs.size())
    core::print("{} of {} launches are in {} already, and count as past\n", h.already_archived, result.runs.size(),
                core::printable(options.history));
  if (h.other_origins > 0)
    core::print(
        "{} launches of other builds or conditions in {} are left out: those of the newest launch are compared with\n",
        h.other_origins, core::printable(options.history));
}

/// Compares with past launches, and then adds the result to them unless it falls below the bar. A first result has no
/// past to be compared with, and is only added.
int compare_with_history(const CompareOptions& options, std::size_t width) {
  const analysis::Side result{.name = core::printable(fmt::format("{}", fmt::join(options.words, ","))),
                              .runs = all_runs(options)};
  analysis::require_each_launch_once({&result, 1});
  analysis::refuse_predicted(result);
  std::error_code error;
  analysis::History history;
  if (fs::exists(options.history, error))
    history = analysis::history_of(result, options.history, options.last, options.reading);
  int code = static_cast<int>(core::ExitCode::done);
  if (!history.past.runs.empty()) {
    if (!options.is_for_programs()) print_history(options, result, history);
    history.past.name = core::printable(options.history);
    code = compare_sides(options, {history.past, history.now}, width);
  } else if (history.already_archived > 0) {
    code = refuse_own_past(options);
  } else {
    core::print("{} has no launch of this machine yet: this result is its first\n", core::printable(options.history));
  }
  if (code == static_cast<int>(core::ExitCode::done)) keep_files(options);
  return code;
}

Usage compare_usage() {
  return {
      .flags = describe_compare(),
      .about =
          "gradmeter compare FIRST SECOND...: which points differ by more than repeated launches do\n"
          "gradmeter compare FILE... --by FACTOR: the same between the values of a factor\n"
          "gradmeter compare FILE... --history DIR: against this machine's past\n"
          "\n"
          "A side is a result file, a directory of them, or a comma list; each run in them is a launch\n"
          "(--out FILE --append adds one). Measure several launches of each side, in turn; an undecided row says how\n"
          "many would be needed.\n"
          "Exit code 1: --fail-below is not met.",
      .words = "sides"};
}

int run_compare_command(const Flags& flags, const Invocation&) {
  const CompareOptions options = read_compare_options(flags);
  if (options.words.empty()) throw UsageError("compare: name result files; see gradmeter compare --help");
  refuse_result_files(flags, {"csv", "findings", "junit"});
  refuse_too_many(options.words);
  if (!options.history.empty()) return compare_with_history(options, table_width(flags));
  if (!options.by && options.words.size() < 2) {
    throw UsageError(
        "compare: one side alone has nothing to differ from; name a second, or --by FACTOR, or --history DIR");
  }
  return compare_sides(options, read_sides(options), table_width(flags));
}

}  // namespace

extern const Command compare_command{
    .name = "compare",
    .summary = "two or more results: which points differ by more than repeated launches do",
    .with_ranks = false,
    .usage = compare_usage,
    .run = run_compare_command};

}  // namespace gradmeter::cli
