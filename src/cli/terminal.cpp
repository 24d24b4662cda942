#include "cli/terminal.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <charconv>
#include <cstdlib>
#include <string_view>

#include "core/table.hpp"

namespace gradmeter::cli {

void add_wide_flag(options::options_description& d) {
  add_switch(d, "wide", "all columns of the tables, however wide the terminal is");
}

std::size_t table_width(const Flags& f) {
  constexpr std::size_t unknown = 120;
  if (f.on("wide")) return core::any_width;
  const char* columns = std::getenv("COLUMNS");
  const std::string_view text(columns ? columns : "");
  std::size_t width = 0;
  if (std::from_chars(text.data(), text.data() + text.size(), width).ec == std::errc{} && width > 0) return width;
  winsize size{};
  const bool known = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return known ? size.ws_col : unknown;
}

}  // namespace gradmeter::cli
