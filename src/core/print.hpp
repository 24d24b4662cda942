// Standard output and standard error: the one way to them of all that a person reads. Paths, labels, host names and
// whatever else others chose lose there what a terminal would obey.
#pragma once
#include <cstdio>
#include <string_view>

#include "core/format.hpp"

namespace gradmeter::core {

/// Writes `text` as `printable_lines` has it. Errors: std::system_error where standard output does not take it; what
/// standard error does not take is lost.
void print_text(std::FILE*, std::string_view text);
/// To standard output, byte for byte: a whole file, or lines that have colours. Errors: as above.
void print_unchanged(std::string_view text);

template <class... T>
void print(std::FILE* to, fmt::format_string<T...> format, T&&... arguments) {
  print_text(to, fmt::vformat(format, fmt::make_format_args(arguments...)));
}
template <class... T>
void print(fmt::format_string<T...> format, T&&... arguments) {
  print_text(stdout, fmt::vformat(format, fmt::make_format_args(arguments...)));
}

}  // namespace gradmeter::core
