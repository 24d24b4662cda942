// A user's input, made fit for a message of one line.
#pragma once
#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>

namespace gradmeter::core::detail {

/// 'text' in quotes; control characters become '?' and a long text is cut, so that the message stays one line.
inline std::string quote(std::string_view text) {
  std::size_t length = std::min<std::size_t>(text.size(), 80);
  // No character is cut in two: a continuation byte of UTF-8 never begins the rest.
  while (length > 0 && length < text.size() && (static_cast<unsigned char>(text[length]) & 0xC0) == 0x80) --length;
  std::string quoted = "'";
  for (const char c : text.substr(0, length)) {
    const auto byte = static_cast<unsigned char>(c);
    quoted += byte < 0x20 || byte == 0x7f ? '?' : c;
  }
  return quoted + (text.size() > length ? "…'" : "'");
}

}  // namespace gradmeter::core::detail
