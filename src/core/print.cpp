#include "core/print.hpp"

#include "core/printable.hpp"

namespace gradmeter::core {

void print_text(std::FILE* to, std::string_view text) {
  const std::string shown = printable_lines(text);
  if (to == stderr) {
    std::fputs(shown.c_str(), to);
  } else {
    fmt::print(to, "{}", shown);
  }
}

void print_unchanged(std::string_view text) { fmt::print("{}", text); }

}  // namespace gradmeter::core
