// SPDX-License-Identifier: Apache-2.0
// The only functions that write text for people to standard output and standard error. All except print_unchanged
// replace characters that would control the terminal, which text from outside (paths, labels, host names) may have.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <optional>
#include <string>
#include <string_view>

#include "core/format.hpp"

namespace gradmeter::core {

/// Writes printable_lines(text). Errors: std::system_error if standard output cannot be written; failures to write
/// standard error are ignored.
void print_text(std::FILE*, std::string_view text);
/// Writes to standard output byte for byte, for whole files and for lines with colours. Errors: std::system_error.
void print_unchanged(std::string_view text);

template <class... T>
void print(std::FILE* to, fmt::format_string<T...> format, T&&... arguments) {
  print_text(to, fmt::vformat(format, fmt::make_format_args(arguments...)));
}
template <class... T>
void print(fmt::format_string<T...> format, T&&... arguments) {
  print_text(stdout, fmt::vformat(format, fmt::make_format_args(arguments...)));
}

/// Makes text from outside fit for terminals, pages and tables. Line ends and tabs become blanks. Characters that would
/// control a terminal, that change the direction of writing, or that XML forbids become U+FFFD: the other control
/// characters (C0, DEL, C1), bidirectional controls, U+FFFE, U+FFFF and bytes that are not UTF-8.
std::string printable(std::string_view text);
/// Does what `printable` does, but keeps '\n' and tabs. Other line ends (CR, U+2028, U+2029) become blanks.
std::string printable_lines(std::string_view text);

/// Escapes a text for a key whose parts are separated by blanks or bars: puts a backslash before each blank, bar and
/// backslash.
std::string escaped_key_part(std::string_view text);

/// The text in single quotes, so that a POSIX shell reads it back byte for byte.
std::string shell_quoted(std::string_view text);

/// The printable form of a text as one word of a POSIX shell's command line, quoted if the shell would interpret it.
std::string shell_word(std::string_view text);

}  // namespace gradmeter::core

namespace gradmeter::core::detail {

/// Takes one code point off the front of a text. If the text does not begin with valid UTF-8, takes one byte and
/// returns an empty result.
std::optional<char32_t> take_code_point(std::string_view& text);

/// A user's input for a message of one line: printable, in single quotes, and cut after 80 bytes.
inline std::string quote(std::string_view input) {
  const std::string text = printable(input);
  std::size_t length = std::min<std::size_t>(text.size(), 80);
  // Never cuts a character in two: the rest must not begin with a continuation byte of UTF-8.
  while (length > 0 && length < text.size() && (static_cast<unsigned char>(text[length]) & 0xC0) == 0x80) --length;
  return "'" + text.substr(0, length) + (text.size() > length ? "…'" : "'");
}

}  // namespace gradmeter::core::detail
