#include "core/printable.hpp"

#include <cstddef>

namespace gradmeter::core {
namespace {

/// The bytes of the character that begins here, and its code point; of what is no UTF-8 one byte and no character.
struct Character {
  std::size_t bytes;
  char32_t code;
};
Character character_at(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned first = byte(at);
  const std::size_t bytes = first < 0xC0 ? 1 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
  if (first < 0x80) return {1, first};
  if (bytes == 1 || at + bytes > text.size()) return {1, 0xFFFF};
  char32_t code = first & (0xFFU >> (bytes + 1));
  for (std::size_t i = at + 1; i < at + bytes; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return {1, 0xFFFF};
    code = code << 6 | (byte(i) & 0x3F);
  }
  return {bytes, code};
}

bool is_blank(char32_t c) { return c == '\t' || c == '\n' || c == '\r' || c == 0x2028 || c == 0x2029; }

bool is_harmful(char32_t c) {
  const bool is_control = c < 0x20 || (c >= 0x7F && c < 0xA0);
  const bool turns =
      c == 0x061C || c == 0x200E || c == 0x200F || (c >= 0x202A && c <= 0x202E) || (c >= 0x2066 && c <= 0x2069);
  return is_control || turns || c == 0xFFFE || c == 0xFFFF;
}

std::string without_harm(std::string_view text, bool keeps_lines) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const auto [bytes, code] = character_at(text, at);
    if (keeps_lines && (code == '\n' || code == '\t')) {
      out += static_cast<char>(code);
    } else if (is_blank(code)) {
      out += ' ';
    } else if (is_harmful(code)) {
      out += "\uFFFD";
    } else {
      out += text.substr(at, bytes);
    }
    at += bytes;
  }
  return out;
}

}  // namespace

std::string printable(std::string_view text) { return without_harm(text, false); }
std::string printable_lines(std::string_view text) { return without_harm(text, true); }

}  // namespace gradmeter::core
