// SPDX-License-Identifier: Apache-2.0
// gradmeter watch: follows a running job by its result file, on a terminal that is drawn anew or line by line. One
// process.
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "bench/engine/flags.hpp"
#include "cli/commands.hpp"
#include "core/error.hpp"
#include "core/format.hpp"
#include "core/print.hpp"
#include "core/result_file.hpp"
#include "core/table.hpp"
#include "report/watch.hpp"
#include "runtime/clock.hpp"
#include "runtime/handle.hpp"
#include "runtime/host/host.hpp"

namespace gradmeter::cli {
namespace {

struct ScreenSize {
  std::size_t width, height;
  bool operator==(const ScreenSize&) const = default;
};

/// Codes of terminals: to the alternate screen without a cursor, and back to the main screen; then for drawing.
constexpr std::string_view alternate_screen = "\033[?1049h\033[?25l", main_screen = "\033[?25h\033[?1049l";
constexpr std::string_view home = "\033[H", rest_of_line = "\033[K", rest_of_screen = "\033[J", no_style = "\033[0m";

std::string_view environment(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

/// True if standard output can be drawn on: a terminal, and no dumb one.
bool can_draw() { return ::isatty(STDOUT_FILENO) && environment("TERM") != "dumb"; }

/// True on a terminal, unless NO_COLOR (no-color.org) is set.
bool wants_colour() { return can_draw() && environment("NO_COLOR").empty(); }

/// The size of standard output's terminal; 80 x 24 where it does not say.
ScreenSize screen_size() {
  winsize size{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0 || size.ws_row == 0) return {80, 24};
  return {size.ws_col, size.ws_row};
}

/// Puts the line's style around it, as far as colours are wanted.
std::string styled(const report::ScreenLine& line, bool colour) {
  using enum report::Style;
  if (!colour || line.style == plain) return line.text;
  const std::string_view code = line.style == heading ? "\033[1m" : line.style == good ? "\033[32m" : "\033[31m";
  return fmt::format("{}{}{}", code, line.text, no_style);
}

/// Redraws the whole terminal in place. Uses the terminal's alternate screen, as pagers do, so that lines that a
/// resized terminal has wrapped anew are overwritten. The main screen comes back in the end.
class Screen {
 public:
  explicit Screen(bool colour) : colour_(colour) { runtime::write_all(STDOUT_FILENO, alternate_screen); }
  ~Screen() { runtime::write_all(STDOUT_FILENO, main_screen); }
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;
  /// Writes all lines at once.
  void draw(std::span<const report::ScreenLine> lines) const {
    std::string text(home);
    for (std::size_t i = 0; i < lines.size(); ++i) {
      text += styled(lines[i], colour_);
      text += rest_of_line;
      if (i + 1 < lines.size()) text += "\r\n";  // after the last row the terminal would scroll
    }
    text += rest_of_screen;
    runtime::write_all(STDOUT_FILENO, text);
  }

 private:
  bool colour_;
};

using core::ResultFollower;
using core::UsageError;
using report::RunState;
using Change = ResultFollower::Change;

FlagList describe_watch() {
  FlagList flags("Flags");
  add_switch(flags, "help,h", "this text");
  add_switch(flags, "once", "print the present state of the run, and end");
  add_switch(flags, "wait", "wait until the file exists or, if its last run has ended, until the next run begins");
  add_text(flags, "every", "1s", "how often to read the file");
  return flags;
}

double seconds_now() {
  timespec t{};
  ::clock_gettime(CLOCK_REALTIME, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

/// The file, and what an observer knows of its writer.
class Watched {
 public:
  explicit Watched(std::string path)
      : path_(std::move(path)), follower_(path_), host_(runtime::host_name()), seen_(runtime::host_clock()) {}

  Change look() {
    Change change = follower_.look();
    const core::WriterLock lock = core::writer_lock(path_);
    // A writer writes its end before it releases the lock, so that a second look finds it.
    if (lock == core::WriterLock::none && change != Change::absent)
      if (const Change again = follower_.look(); change == Change::none) change = again;
    if (change != Change::absent) {
      seen_ = runtime::host_clock();
      exists_ = true;
    }
    observation_ = {.now = seconds_now(),
                    .last_growth = follower_.last_growth(),
                    .is_held = lock == core::WriterLock::held,
                    .is_free = lock == core::WriterLock::none,
                    .host = host_};
    return change;
  }
  const std::string& path() const { return path_; }
  const core::ResultFile& file() const { return follower_.file(); }
  report::Observation observation() const {
    report::Observation now = observation_;
    now.now = seconds_now();
    return now;
  }
  report::RunProgress progress() const { return report::progress_of(file(), observation()); }
  RunState state() const { return progress().state; }
  /// Takes the present last run, which is over, for one that is not to be watched.
  void pass_over() {
    if (!file().runs.empty()) passed_ = file().runs.back().info.run_id;
  }
  bool waits_for_next() const {
    return !passed_.empty() && !file().runs.empty() && file().runs.back().info.run_id == passed_;
  }
  bool exists() const { return exists_; }
  double away_s() const { return runtime::host_clock() - seen_; }
  const std::string& problem() const { return follower_.problem(); }

 private:
  std::string path_;
  ResultFollower follower_;
  std::string host_, passed_;  // passed_: the id of the run that is not to be watched
  report::Observation observation_;
  bool exists_ = false;
  double seen_;  ///< when the file was last there [s of runtime::host_clock]
};

std::vector<report::ScreenLine> screen_of(const Watched& w, ScreenSize size) {
  const auto line = [&](const std::string& text, report::Style style = report::Style::plain) {
    return report::ScreenLine{report::truncated_to(text, size.width), style};
  };
  if (!w.exists()) return {line(fmt::format("waiting for {}: {}", w.path(), w.problem()))};
  auto lines = report::watch_screen(w.file(), w.observation(), size.width, std::max<std::size_t>(size.height, 3) - 2);
  if (w.waits_for_next()) lines.push_back(line("waiting for the next run"));
  if (!w.problem().empty())
    lines.push_back(line(fmt::format("{} is away: {}", w.path(), w.problem()), report::Style::bad));
  return lines;
}

void print(const std::vector<report::ScreenLine>& lines) {
  const bool colour = wants_colour();
  for (const auto& line : lines) core::print_unchanged(styled(line, colour) + '\n');
  std::fflush(stdout);
}

/// Shows the state on a screen of its own.
class ScreenDisplay {
 public:
  void show(const Watched& w, Change) {
    if (!screen_) screen_.emplace(wants_colour());
    screen_->draw(screen_of(w, screen_size()));
  }
  /// Prints the last state on the main screen, where it stays.
  void end(const Watched& w) {
    screen_.reset();
    print(screen_of(w, screen_size()));
  }

 private:
  std::optional<Screen> screen_;
};

/// Prints a line for each point, and for each change of the state.
class LineDisplay {
 public:
  void show(const Watched& w, Change change) {
    if (change == Change::replaced) say("the file begins anew");
    if (!w.exists() || !w.problem().empty()) return say(screen_of(w, {core::any_width, 3}).back().text);
    if (w.file().runs.empty()) return say(report::state_text(w.file(), w.progress()).text);
    const core::Run& run = w.file().runs.back();
    if (run.info.run_id != run_id_) {
      run_id_ = run.info.run_id;
      shown_ = 0;
      for (const auto& line : report::watch_screen(w.file(), w.observation(), core::any_width, 2)) say(line.text);
    }
    for (; shown_ < run.points.size(); ++shown_) {
      report::RunProgress p = w.progress();
      p.done = shown_ + 1;
      core::print("{} · {}\n", report::progress_text(p), report::point_line(run.points[shown_]));
    }
    const report::RunProgress now = w.progress();
    if (now.state != state_ && now.state != RunState::running) say(report::state_text(w.file(), now).text);
    state_ = now.state;
    if (w.waits_for_next()) say("waiting for the next run");
    std::fflush(stdout);
  }
  void end(const Watched&) {}

 private:
  /// Prints a line, unless the last line said the same.
  void say(const std::string& line) {
    if (line != std::exchange(said_, line)) core::print("{}\n", line);
    std::fflush(stdout);
  }
  std::string run_id_, said_;  // the run whose points are printed; the last line of say()
  std::size_t shown_ = 0;      // how many points of this run are printed
  RunState state_ = RunState::running;
};

/// The run's own exit code if it has ended; ExitCode::backend if its writer is gone; else 0.
int exit_code(const Watched& w) {
  const report::RunProgress p = w.progress();
  if (p.state == RunState::ended) return static_cast<int>(w.file().runs.back().end->exit);
  return static_cast<int>(p.state == RunState::gone ? core::ExitCode::backend : core::ExitCode::done);
}

bool is_over(const Watched& w) { return w.state() == RunState::ended || w.state() == RunState::gone; }

/// Sleeps until `end` [s of runtime::host_clock]; returns sooner after a signal, or when the terminal has another size.
void sleep_until(double end, const runtime::SignalWatch& signals) {
  constexpr std::chrono::milliseconds slice{50};
  const ScreenSize size = screen_size();
  while (runtime::host_clock() < end && signals.first_signal() == 0 && screen_size() == size)
    std::this_thread::sleep_for(slice);
}

[[noreturn]] void refuse_absent(const Watched& w) {
  throw UsageError(
      fmt::format("cannot read '{}': {}; name an existing result file, or --wait for it", w.path(), w.problem()));
}

/// Shows the run until it ends, and returns its exit code. `Display`: ScreenDisplay or LineDisplay.
template <class Display>
int follow(Watched& w, Display display, core::Seconds every, bool waits, const runtime::SignalWatch& signals) {
  // The longest time for which a file that was there may be out of reach, as on a network disk.
  constexpr double timeout_s = 60;
  Change change = w.look();
  double next = runtime::host_clock() + every.value;
  if (waits && w.exists() && is_over(w)) w.pass_over();
  while (true) {
    if (runtime::host_clock() >= next) {
      change = w.look();
      next = runtime::host_clock() + every.value;
    }
    display.show(w, change);
    change = Change::none;
    if (w.exists() && w.problem().empty() && is_over(w) && !w.waits_for_next()) break;
    if (!w.problem().empty() && !waits && (!w.exists() || w.away_s() > timeout_s)) {
      display.end(w);
      refuse_absent(w);
    }
    // at least once a second, since the screen shows clocks
    sleep_until(std::min(next, runtime::host_clock() + 1), signals);
    if (const int signal = signals.first_signal()) {
      display.end(w);
      throw core::Interrupted(signal);
    }
  }
  display.end(w);
  return exit_code(w);
}

Usage watch_usage() {
  return {.flags = describe_watch(),
          .about =
              "gradmeter watch FILE: follows a running job by the result file that it writes (--out)\n"
              "\n"
              "mpirun -np 4 gradmeter scale --out r.jsonl &  gradmeter watch --wait r.jsonl\n"
              "It ends when the run ends, with the run's exit code, or with 3 if the run was killed.",
          .words = "file"};
}

int run_watch_command(const Flags& f, const Invocation& invocation) {
  if (f.words().size() != 1) throw UsageError("watch: name one result file; see gradmeter watch --help");
  const core::Seconds every = parse_time("--every", f.text("every"));
  constexpr double least_s = 0.1;
  if (every.value < least_s)
    throw UsageError(fmt::format(
        "--every {}: reading the file so often would take a core from the run; give 100ms or more", f.text("every")));
  Watched watched(f.words()[0]);
  if (f.on("once")) {
    if (f.on("wait")) throw UsageError("give one of --once and --wait");
    if (watched.look() == Change::absent) refuse_absent(watched);
    print(screen_of(watched, {table_width(f), screen_size().height}));
    return exit_code(watched);
  }
  const runtime::SignalWatch& signals = invocation.process.signals;
  return can_draw() ? follow(watched, ScreenDisplay(), every, f.on("wait"), signals)
                    : follow(watched, LineDisplay(), every, f.on("wait"), signals);
}

}  // namespace

extern const Command watch_command{
    .name = "watch",
    .summary = "progress of a running job: its last points, failures, and whether it is alive",
    .with_ranks = false,
    .usage = watch_usage,
    .run = run_watch_command};

}  // namespace gradmeter::cli
