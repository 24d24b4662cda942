// SPDX-License-Identifier: Apache-2.0
// The line that shows the progress of a long run to a person at a terminal. Results are never on that line.
#pragma once
#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "core/units.hpp"
#include "runtime/handle.hpp"

namespace gradmeter::runtime {

struct ProgressState {
  std::string_view what;  ///< plural name of what is counted: "points"
  std::size_t done = 0, total = 0;
  std::optional<core::Seconds> left = {};  ///< time left [s]; empty: not known yet
  std::string_view now_doing;              ///< may come from a user's file, so control characters are made visible
};

/// "12/24 points · 01:10 left · sync ring 4 ranks", shortened to fewer than `columns` columns.
std::string progress_line(const ProgressState& state, std::size_t columns);

/// Draws a progress line on the terminal of standard error. Without a terminal, or if `enabled` is false, every call
/// does nothing. Under mpirun a rank's standard error is a pipe; if mpirun is the rank's parent process, the rank then
/// draws on mpirun's terminal. Only one thread may use an object. A Progress draws at most ten lines a second, and
/// stops when the terminal goes away.
class Progress {
 public:
  Progress(std::string what, std::size_t total, bool enabled, int descriptor = 2);
  ~Progress() { finish(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void update(std::size_t done, std::optional<core::Seconds> left, std::string_view now_doing);
  /// Empties the line, so that a result can be printed. Updates within the next tenth of a second draw nothing.
  void clear();
  /// Clears the line; later calls do nothing.
  void finish();
  bool has_terminal() const { return static_cast<bool>(terminal_); }

 private:
  void draw(std::string_view text);

  using Clock = std::chrono::steady_clock;
  std::string what_;
  std::size_t total_;
  Clock::time_point next_ = Clock::now();  ///< earliest time of the next drawing
  Descriptor terminal_;
  bool drawn_ = false;
};

}  // namespace gradmeter::runtime
