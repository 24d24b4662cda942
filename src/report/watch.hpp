// SPDX-License-Identifier: Apache-2.0
// The screen of `gradmeter watch` for a run that is under way: how far it is, its last points, what failed, how it
// ended.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/result_file.hpp"

namespace gradmeter::report {

/// gone: the run has released the result file's lock without writing its end. silent: the lock does not tell (its state
/// is unknown, or the run is on another host), and the run has written nothing for a long time.
enum class RunState : std::uint8_t { none, running, ended, gone, silent };

/// The facts that an observer knows besides the file's contents. Times are in seconds since 1970.
struct Observation {
  double now = 0, last_growth = 0;
  bool is_held = false;   ///< somebody has the writer's lock
  bool is_free = false;   ///< nobody has the lock; if both are false, its state is unknown
  std::string host = {};  ///< host of the observer
};

/// The progress of the last run in a file.
struct RunProgress {
  RunState state = RunState::none;
  std::size_t done = 0;               ///< number of points of this run that are in the file
  std::optional<core::RunPlan> plan;  ///< empty: the file has none, since an earlier version of gradmeter wrote it
  double elapsed_s = 0;
  std::optional<double> left_s;  ///< expected time to the end [s]; empty: no point or plan yet, or the run is over
  double quiet_s = 0;            ///< time since the file last grew [s]
};
/// Finds how far the last run in the file is. The time left assumes that the other points take as long as those that
/// are done. Only a run on the observer's own host can count as gone, since the lock of another host may not be
/// visible. A run counts as silent when it has written nothing for five times the mean time of a point so far, and for
/// at least a minute.
RunProgress progress_of(const core::ResultFile&, const Observation&);

enum class Style : std::uint8_t { plain, heading, good, bad };
struct ScreenLine {
  std::string text;
  Style style = Style::plain;
};
/// The lines of the screen: at most `height`, each at most `width` terminal cells long; control characters are made
/// visible.
std::vector<ScreenLine> watch_screen(const core::ResultFile&, const Observation&, std::size_t width,
                                     std::size_t height);

/// The text, shortened to at most `width` terminal cells. Control characters become U+FFFD (core::printable), so that
/// text from a file cannot control the terminal.
std::string truncated_to(std::string_view text, std::size_t width);
/// The progress in a line: "5 of 24 points · 01:10 elapsed · 03:20 left".
std::string progress_text(const RunProgress&);
/// The state of the run in one line.
ScreenLine state_text(const core::ResultFile&, const RunProgress&);
/// A point in one line, for output that cannot be redrawn.
std::string point_line(const core::Point&);
/// A point in one line for a person who waits: "resnet50 b4 2 ranks ring bf16: 147 ms, 47 %". A percentage without a
/// name is the efficiency; if there is none, it is "47 % of the roofline" or "47 % accuracy".
std::string short_line(const core::Point&);
/// A table of the last `most` points: the factors in which the run's points differ, and the results.
std::string recent_table(const core::Run&, std::size_t most, std::size_t width);

}  // namespace gradmeter::report
