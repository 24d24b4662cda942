// A terminal that is drawn anew in place, over its whole height.
#pragma once
#include <cstddef>
#include <span>
#include <string>

#include "report/watch.hpp"

namespace gradmeter::cli {

struct ScreenSize {
  std::size_t width, height;
  bool operator==(const ScreenSize&) const = default;
};

/// Whether standard output can be drawn on: a terminal, and no dumb one.
bool can_draw();
/// Without NO_COLOR (no-color.org) and with a terminal.
bool wants_colour();
/// Of standard output's terminal; 80 x 24 where it does not say.
ScreenSize screen_size();
/// The line with its style, as far as colours are wanted.
std::string styled(const report::ScreenLine&, bool colour);

/// Uses the terminal's other screen, as pagers do, so that what a resized terminal wraps anew is drawn over. The former
/// one comes back in the end.
class Screen {
 public:
  explicit Screen(bool colour);
  ~Screen();
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;
  /// In one write.
  void draw(std::span<const report::ScreenLine>) const;

 private:
  bool colour_;
};

}  // namespace gradmeter::cli
