// SPDX-License-Identifier: Apache-2.0
#include "core/print.hpp"

#include <algorithm>
#include <array>
#include <cstddef>

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

std::optional<char32_t> detail::take_code_point(std::string_view& text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned first = byte(0);
  const std::size_t bytes = first < 0x80   ? 1
                            : first < 0xC0 ? 0
                            : first < 0xE0 ? 2
                            : first < 0xF0 ? 3
                            : first < 0xF8 ? 4
                                           : 0;
  bool is_whole = bytes > 0 && bytes <= text.size();
  char32_t code = bytes == 1 ? first : first & (0xFFU >> (bytes + 1));
  for (std::size_t i = 1; is_whole && i < bytes; ++i) {
    is_whole = (byte(i) & 0xC0) == 0x80;
    code = code << 6 | (byte(i) & 0x3F);
  }
  constexpr std::array<char32_t, 5> least{0, 0, 0x80, 0x800, 0x10000};  // a smaller code has a shorter form
  const bool is_surrogate = code >= 0xD800 && code <= 0xDFFF;
  is_whole = is_whole && code >= least.at(bytes) && code <= 0x10FFFF && !is_surrogate;
  text.remove_prefix(is_whole ? bytes : 1);
  return is_whole ? std::optional(code) : std::nullopt;
}

namespace {

bool is_blank(char32_t c) { return c == '\t' || c == '\n' || c == '\r' || c == 0x2028 || c == 0x2029; }

bool is_harmful(char32_t c) {
  const bool is_control = c < 0x20 || (c >= 0x7F && c < 0xA0);
  const bool changes_direction =
      c == 0x061C || c == 0x200E || c == 0x200F || (c >= 0x202A && c <= 0x202E) || (c >= 0x2066 && c <= 0x2069);
  return is_control || changes_direction || c == 0xFFFE || c == 0xFFFF;
}

std::string replace_harmful(std::string_view text, bool keeps_lines) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const std::string_view before = text;
    const char32_t code = detail::take_code_point(text).value_or(0xFFFF);
    if (keeps_lines && (code == '\n' || code == '\t')) {
      out += static_cast<char>(code);
    } else if (is_blank(code)) {
      out += ' ';
    } else if (is_harmful(code)) {
      out += "\uFFFD";
    } else {
      out += before.substr(0, before.size() - text.size());
    }
  }
  return out;
}

}  // namespace

std::string printable(std::string_view text) { return replace_harmful(text, false); }
std::string printable_lines(std::string_view text) { return replace_harmful(text, true); }

namespace {

/// True for letters, digits, characters beyond ASCII, and punctuation that has no meaning in any shell.
bool is_plain(char c) {
  const bool is_letter_or_digit = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
  const bool is_ascii = static_cast<unsigned char>(c) < 0x80;
  return is_letter_or_digit || !is_ascii || std::string_view("_-./,:=+@%").find(c) != std::string_view::npos;
}

}  // namespace

std::string escaped_key_part(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == ' ' || c == '|' || c == '\\') out += '\\';
    out += c;
  }
  return out;
}

std::string shell_quoted(std::string_view text) {
  std::string out = "'";
  for (const char c : text) {
    if (c == '\'') {
      out += "'\\''";
    } else {
      out += c;
    }
  }
  return out + "'";
}

std::string shell_word(std::string_view text) {
  std::string word = printable(text);
  return !word.empty() && std::ranges::all_of(word, is_plain) ? word : shell_quoted(word);
}

}  // namespace gradmeter::core
