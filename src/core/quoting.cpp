#include "core/quoting.hpp"

#include <algorithm>

#include "core/printable.hpp"

namespace gradmeter::core {
namespace {

/// Letters and digits, characters beyond ASCII, and what no shell minds.
bool is_plain(char c) {
  const bool is_letter_or_digit = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
  const bool is_ascii = static_cast<unsigned char>(c) < 0x80;
  return is_letter_or_digit || !is_ascii || std::string_view("_-./,:=+@%").find(c) != std::string_view::npos;
}

}  // namespace

std::string key_part(std::string_view text) {
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
