// What `gradmeter watch` shows of a run that is under way: how far it is, its last points, what failed, how it ended.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/result_file.hpp"

namespace gradmeter::report {

/// gone: it holds no lock any more and left no end. silent: nobody can tell, and it has written nothing for long.
enum class RunState : std::uint8_t { none, running, ended, gone, silent };

/// What an observer knows besides the file. Times in seconds since 1970.
struct Observation {
  double now = 0, last_growth = 0;
  bool is_held = false;   ///< somebody has the writer's lock
  bool is_free = false;   ///< nobody has; both false: nobody can tell
  std::string host = {};  ///< the observer's
};

/// Of the last run in a file.
struct Progress {
  RunState state = RunState::none;
  std::size_t done = 0;               ///< points of this run
  std::optional<core::RunPlan> plan;  ///< nothing in files of earlier programs
  double elapsed_s = 0;
  std::optional<double> left_s;  ///< nothing before the first point, and without a plan
  double quiet_s = 0;            ///< since the file grew
};
/// The time left supposes that the others take as long as those that are done.
/// A writer on another host is gone only where its lock is seen; it is silent after five times what a point took so
/// far, and a minute at least.
Progress progress_of(const core::ResultFile&, const Observation&);

enum class Style : std::uint8_t { plain, heading, good, bad };
struct ScreenLine {
  std::string text;
  Style style = Style::plain;
};
/// No more lines than `height`, none longer than `width` terminal cells; control characters are made visible.
std::vector<ScreenLine> watch_screen(const core::ResultFile&, const Observation&, std::size_t width,
                                     std::size_t height);

/// Cut to so many terminal cells; control characters become '?', so that a file's text cannot command the terminal.
std::string fitted(std::string_view text, std::size_t width);
/// "5 of 24 points · 01:10 elapsed · 03:20 left".
std::string progress_text(const Progress&);
/// What became of the run, in one line.
ScreenLine state_text(const core::ResultFile&, const Progress&);
/// One line, for a terminal that cannot be drawn on.
std::string point_line(const core::Point&);
/// The last `most` points: the factors in which the run's points differ, and what was measured.
std::string recent_table(const core::Run&, std::size_t most, std::size_t width);

}  // namespace gradmeter::report
