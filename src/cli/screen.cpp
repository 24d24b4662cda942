#include "cli/screen.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>
#include <string_view>

#include "core/format.hpp"
#include "runtime/descriptor.hpp"

namespace gradmeter::cli {
namespace {

constexpr std::string_view other_screen = "\033[?1049h\033[?25l", former_screen = "\033[?25h\033[?1049l";
constexpr std::string_view home = "\033[H", rest_of_line = "\033[K", rest_of_screen = "\033[J", no_style = "\033[0m";

std::string_view environment(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

}  // namespace

bool can_draw() { return ::isatty(STDOUT_FILENO) && environment("TERM") != "dumb"; }

bool wants_colour() { return can_draw() && environment("NO_COLOR").empty(); }

ScreenSize screen_size() {
  winsize size{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0 || size.ws_row == 0) return {80, 24};
  return {size.ws_col, size.ws_row};
}

std::string styled(const report::ScreenLine& line, bool colour) {
  using enum report::Style;
  if (!colour || line.style == plain) return line.text;
  const std::string_view code = line.style == heading ? "\033[1m" : line.style == good ? "\033[32m" : "\033[31m";
  return fmt::format("{}{}{}", code, line.text, no_style);
}

Screen::Screen(bool colour) : colour_(colour) { runtime::write_all(STDOUT_FILENO, other_screen); }

Screen::~Screen() { runtime::write_all(STDOUT_FILENO, former_screen); }

void Screen::draw(std::span<const report::ScreenLine> lines) const {
  std::string text(home);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    text += styled(lines[i], colour_);
    text += rest_of_line;
    if (i + 1 < lines.size()) text += "\r\n";  // after the last row the terminal would scroll
  }
  text += rest_of_screen;
  runtime::write_all(STDOUT_FILENO, text);
}

}  // namespace gradmeter::cli
