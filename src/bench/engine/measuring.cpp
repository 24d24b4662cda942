// SPDX-License-Identifier: Apache-2.0
#include "bench/engine/measuring.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <utility>
#include <vector>

#include "bench/engine/command.hpp"
#include "bench/engine/devices.hpp"
#include "bench/engine/flags.hpp"
#include "bench/engine/output.hpp"
#include "core/error.hpp"
#include "core/format.hpp"
#include "core/print.hpp"
#include "core/result_file.hpp"
#include "report/watch.hpp"
#include "runtime/process/progress.hpp"

namespace gradmeter::bench {
namespace {

/// Says which points an interrupted run has kept, and how it goes on. writer: null where the run has no file.
std::string interrupted_line(std::size_t shown, const MeasuringCommand& command, const core::ResultWriter* writer) {
  const std::size_t counted = command.points > 0 ? command.points : shown;
  const std::string points = fmt::format(
      "{}{} point{}", shown, command.points > 0 ? fmt::format(" of {}", command.points) : "", counted == 1 ? "" : "s");
  const char* are = shown == 1 ? "is" : "are";
  if (!writer) return fmt::format("interrupted; nothing was kept of {}, since there is no --out FILE", points);
  return fmt::format("interrupted; {} {} in {}{}", points, are, writer->path().string(),
                     command.can_resume ? "; go on with --resume" : "");
}

}  // namespace

std::string head_line(const core::RunInfo& info, std::string_view what) {
  return fmt::format("gradmeter {} ({})  {}{}{} rank{} on {} node{}", info.version, info.commit, what,
                     what.empty() ? "" : "  ", info.ranks, info.ranks == 1 ? "" : "s", info.nodes,
                     info.nodes == 1 ? "" : "s");
}

std::unique_ptr<Session> open_session(const Flags& f, const Invocation& invocation) {
  auto session = std::make_unique<Session>(*invocation.world, invocation.process,
                                           parse_time("--timeout", f.text("timeout")), invocation.command_line);
  // Reading it takes a while, so it is only read for runs whose head line is written.
  if (f.has("out") || f.on("json")) session->read_mpi_copy_mechanism();
  if (!f.has("device")) return session;
  check_one_of("--device", f.text("device"), device_names);
  const OpenedDevice device = open_device(f.text("device"), session->world());
  session->compute_on(device.device, device.note, device.gauge);
  if (session->is_root() && !device.note.empty()) core::print(stderr, "{}\n", device.note);
  return session;
}

MeasuringRanks measuring_ranks(const Session& s, const runtime::Communicator* ranks) {
  return {s.run_info(), ranks ? ranks : &s.world(), s.device(), s.device_note()};
}

int exit_code(const MeasuringCommand& command, std::span<const core::Point> points, std::size_t wrong) {
  if (wrong > 0) {
    core::print(stderr, "gradmeter: {} of {} points {}\n", wrong, points.size(), command.wrong_message);
    return static_cast<int>(core::ExitCode::wrong_result);
  }
  const core::ExitCode end = command.end ? command.end(points) : core::ExitCode::done;
  const auto has_failed = [](const core::Point& p) { return p.status == core::Status::failed; };
  const auto failed = std::ranges::count_if(points, has_failed);
  if (failed == 0) return static_cast<int>(end);
  core::print(stderr, "gradmeter: {} of {} points failed and {} no result, the first because: {}\n", failed,
              points.size(), failed == 1 ? "has" : "have",
              core::printable(std::ranges::find_if(points, has_failed)->reason));
  return static_cast<int>(core::ExitCode::backend);
}

int measure(const MeasuringRanks& measured_by, const Flags& f, const Invocation& invocation,
            const MeasuringCommand& command) {
  const bool root = measured_by.is_root();
  const Format format = read_format(f);
  const OutputFlags output = read_output_flags(f);
  EarlierResults earlier;
  core::ResultWriter* writer = nullptr;
  const auto open = [&] {
    if (command.check) command.check();
    earlier = check_output(output, measured_by.info, command.experiment);
    writer = invocation.output->open(output, measured_by.info);
  };
  if (measured_by.ranks) {
    run_on_rank_0(*measured_by.ranks, open);
    earlier.finished = share_finished(*measured_by.ranks, std::move(earlier.finished));
  } else {
    open();
  }
  runtime::Progress progress("points", command.points, root);
  RowOutput out(format, command.printers, table_width(f), measured_by.info.run_id, writer, progress);
  if (root) {
    if (!earlier.note.empty()) core::print(stderr, "{}\n", earlier.note);
    out.head(measured_by.info);
    if (format == Format::table && command.head) command.head();
    std::fflush(stdout);
  }
  try {
    const std::size_t wrong = command.measure(
        earlier.finished, with_device_caveats(out.listener(), measured_by.device, measured_by.device_note));
    int code = 0;
    if (root) {
      out.finish();
      if (format == Format::table && command.legend) core::print("{}", command.legend(out.points()));
      out.close(invocation, command.answer ? command.answer(out.points()) : std::nullopt);
      code = exit_code(command, out.points(), wrong);
    }
    return measured_by.ranks ? measured_by.ranks->broadcast_value(code) : code;
  } catch (const core::Interrupted&) {
    if (root) {
      out.finish();
      core::print(stderr, "gradmeter: {}\n", interrupted_line(out.count(), command, writer));
    }
    throw;
  }
}

void add_format_flags(FlagList& list) {
  add_switch(list, "csv", "one line of CSV for each point, instead of the tables");
  add_switch(list, "json", "one line of JSON a point as in the result file, instead of the tables");
  add_wide_flag(list);
  add_legend_flag(list);
}

Format read_format(const Flags& f) {
  if (f.on("csv") && f.on("json")) throw core::UsageError("give one of --csv and --json");
  return f.on("csv") ? Format::csv : f.on("json") ? Format::json : Format::table;
}

namespace {
std::string rough_text(core::Seconds s) {
  constexpr double minute = 60, hour = 3600;
  if (s.value < 1.5 * minute) return fmt::format("{:.0f} s", s.value);
  return s.value < 1.5 * hour ? fmt::format("{:.0f} min", s.value / minute) : fmt::format("{:.1f} h", s.value / hour);
}
}  // namespace

void RowOutput::head(const core::RunInfo& info) const {
  if (format_ == Format::json) core::print("{}\n", core::to_json_line(info));
  if (format_ == Format::csv) core::print("{}", printers_.csv.header());
  std::fflush(stdout);
}

RowListener RowOutput::listener() {
  return {.planned =
              [this](std::size_t points, std::size_t kept) {
                planned_ = points + kept;
                if (writer_) writer_->append(core::make_plan(points, kept));
              },
          .group_measured =
              [this](std::size_t points, std::size_t rest) {
                measured_ += points, rest_ = rest, measured_at_ = runtime::host_clock();
              },
          .measured =
              [this](const core::Point& p) {
                if (writer_) writer_->append(p);
                counts_.add(p);
                show(p);
                say(report::short_line(p));
              },
          .kept =
              [this](const core::Point& p) {
                counts_.keep();
                show(p);
              },
          .progress =
              [this](const std::string& now) {
                progress_.update(points_.size(), time_left(), now);
                // The line is printed only where rows come slowly; otherwise the rows show how far the run is.
                constexpr double slow = 2, silence = 10;  // [s]
                const double at = runtime::host_clock(), last = std::exchange(progress_at_, at);
                if (at - last >= slow || at - said_at_ >= silence) say(now);
              },
          .warning =
              [this](const std::string& line) {
                progress_.clear();
                core::print(stderr, "gradmeter: {}\n", line);
              }};
}

void RowOutput::say(const std::string& text) {
  if (progress_.has_terminal()) return;
  said_at_ = runtime::host_clock();
  const auto left = time_left();
  core::print(stderr, "[{}{}] {}{}\n", points_.size(), planned_ > 0 ? fmt::format("/{}", planned_) : "",
              core::printable(text), left ? fmt::format(" · {} left", rough_text(*left)) : "");
}

/// Assumes that a point takes as long as the mean point measured so far; empty before the first group.
std::optional<core::Seconds> RowOutput::time_left() const {
  if (measured_ == 0 || rest_ == 0) return {};
  const double seconds_per_point = (measured_at_ - begin_) / static_cast<double>(measured_);
  const double rest = seconds_per_point * static_cast<double>(rest_);
  return core::Seconds{std::max(0.0, rest - (runtime::host_clock() - measured_at_))};
}

void RowOutput::finish() {
  progress_.finish();
  if (format_ == Format::table && printers_.tables) core::print("{}", printers_.tables(points_, width_));
}

void RowOutput::close(const Invocation& invocation, std::optional<analysis::Finding> answer) const {
  if (format_ != Format::table) return;
  const std::string file = writer_ ? writer_->path().string() : "";
  core::print("{}", closing_lines(points_, invocation, file, std::move(answer)));
  if (writer_) core::print("\n{}; {}\n", counts_.text(), file);
}

void RowOutput::show(const core::Point& p) {
  points_.push_back(p);
  progress_.update(points_.size(), time_left(), "");
  if (format_ == Format::json) core::print("{}\n", core::to_json_line(p, run_id_));
  if (format_ == Format::csv) core::print("{}", printers_.csv.row(p));
  if (format_ == Format::table && printers_.live) {
    progress_.clear();
    core::print("{}", printers_.live(p));
  }
  if (format_ != Format::table || printers_.live) std::fflush(stdout);
}

namespace {

using analysis::Finding;
using analysis::FindingKind;

/// The kinds of findings that answer one question of an experiment; the first such finding is printed.
struct Question {
  std::string_view experiment;
  std::vector<FindingKind> answers;
};
const std::vector<Question>& questions() {
  using enum FindingKind;
  static const std::vector<Question> questions{{"scale", {change, small_batch}},
                                               {"scale", {lost_to, efficiency, not_trusted}},
                                               {"kernels", {change}},
                                               {"kernels", {roofline}},
                                               {"infer", {change}},
                                               {"codecs", {crossover}},
                                               {"links", {slow_host, slow_link, slow_rank}},
                                               {"soak", {disturbance}},
                                               {"train", {accuracy}},
                                               {"replay", {replayed}}};
  return questions;
}

/// True for kinds that make the figures doubtful; these come first in the enumeration.
bool is_spoiler(const Finding& f) { return f.kind <= FindingKind::disturbance; }

/// True for a comparison that shows nothing to be faster; more launches would decide it.
bool is_open(const Finding& f) {
  return (f.kind == FindingKind::change || f.kind == FindingKind::fastest_exchange) && !(f.severity > 0);
}

/// Adds the findings about the fastest exchange for the largest size only, at most one for each placement.
void add_exchanges(const std::vector<Finding>& found, std::vector<const Finding*>& out) {
  const auto size = [](const Finding& f) {
    const auto* bytes = f.factors[core::Factor::size_bytes].as<std::int64_t>();
    return bytes ? *bytes : 0;
  };
  std::int64_t largest = -1;
  for (const Finding& f : found)
    if (f.kind == FindingKind::fastest_exchange) largest = std::max(largest, size(f));
  for (const Finding& f : found)
    if (f.kind == FindingKind::fastest_exchange && size(f) == largest && out.size() < 2) out.push_back(&f);
}

std::vector<const Finding*> answers(const std::vector<Finding>& found) {
  std::vector<const Finding*> out;
  add_exchanges(found, out);
  for (const Question& question : questions()) {
    const auto answer = std::find_if(found.begin(), found.end(), [&](const Finding& f) {
      return f.experiment == question.experiment &&
             std::find(question.answers.begin(), question.answers.end(), f.kind) != question.answers.end();
    });
    if (answer != found.end()) out.push_back(&*answer);
  }
  return out;
}

const Command* command_of(const std::string& line, const Invocation& invocation) {
  constexpr std::string_view program = "gradmeter ";
  if (!line.starts_with(program)) return nullptr;
  const std::string name = line.substr(program.size(), line.find(' ', program.size()) - program.size());
  const auto found =
      std::find_if(invocation.commands.begin(), invocation.commands.end(), [&](auto* c) { return c->name == name; });
  return found == invocation.commands.end() ? nullptr : *found;
}

bool contains_words(const std::string& line, std::string_view words) { return line.find(words) != std::string::npos; }

/// The next command if no finding names one: more launches if something is undecided; otherwise an HTML report of the
/// result file, or the same run with a result file.
std::string usual_next(const Invocation& invocation, const std::string& file, bool is_undecided) {
  const std::string same_run = with_ranks(invocation.command_line, invocation);
  const bool repeats = !contains_words(same_run, " --force") && !contains_words(same_run, " --resume") &&
                       !contains_words(same_run, " --solo");
  const std::string same_run_with_file = file.empty() ? same_run + " --out results.jsonl" : same_run;
  if (is_undecided && repeats) return fmt::format("scripts/launches.sh 5 -- {}", same_run_with_file);
  return file.empty() ? same_run_with_file + (contains_words(same_run, " --append") ? "" : " --append")
                      : fmt::format("gradmeter report {} -o report.html", core::shell_word(file));
}

}  // namespace

std::string PointCounts::text() const {
  const auto count = [this](core::Status s) { return by_status_.contains(s) ? by_status_.at(s) : 0; };
  std::string out = fmt::format("{} measured, {} kept", report::counted(count(core::Status::ok), "point"), kept_);
  for (const auto& [status, n] : by_status_)
    if (status != core::Status::ok) out += fmt::format(", {} {}", n, core::name(status));
  return out;
}

std::string with_ranks(const std::string& command, const Invocation& invocation) {
  const Command* const c = command_of(command, invocation);
  if (!invocation.world || invocation.world->size() < 2 || !c || !c->with_ranks ||
      contains_words(command, "--thread-ranks"))
    return command;
  return invocation.world->ranks_as() == runtime::RanksAs::threads
             ? fmt::format("{} --thread-ranks {}", command, invocation.world->size())
             : fmt::format("mpirun -np {} {}", invocation.world->size(), command);
}

std::string closing_lines(std::span<const core::Point> points, const Invocation& invocation, const std::string& file,
                          std::optional<Finding> answer) {
  const core::Run run{.info = {}, .points = {points.begin(), points.end()}};
  const auto found = analysis::findings({&run, 1});
  std::vector<const Finding*> shown;
  if (answer) {
    shown.push_back(&*answer);
  } else {
    shown = answers(found);
  }
  const auto spoiler = std::find_if(found.begin(), found.end(), is_spoiler);
  if (spoiler != found.end() && std::find(shown.begin(), shown.end(), &*spoiler) == shown.end())
    shown.push_back(&*spoiler);
  if (shown.empty() && !found.empty()) shown.push_back(&found.front());
  if (points.empty()) return "";
  std::string out = shown.empty() ? "No difference is shown: nothing is concluded from these points.\n" : "", next;
  for (const Finding* f : shown) {
    out += f->sentence + "\n";
    if (next.empty() && !is_open(*f) && command_of(f->next, invocation)) next = with_ranks(f->next, invocation);
  }
  if (next.empty())
    next = usual_next(invocation, file, std::any_of(shown.begin(), shown.end(), [](auto* f) { return is_open(*f); }));
  return fmt::format("\n{}next: {}\n", out, next);
}

}  // namespace gradmeter::bench
