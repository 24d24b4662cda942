// A user's input, made fit for a message of one line.
#pragma once
#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>

#include "core/printable.hpp"

namespace gradmeter::core::detail {

/// 'text' in quotes, printable; a long text is cut, so that the message stays one line.
inline std::string quote(std::string_view given) {
  const std::string text = printable(given);
  std::size_t length = std::min<std::size_t>(text.size(), 80);
  // No character is cut in two: a continuation byte of UTF-8 never begins the rest.
  while (length > 0 && length < text.size() && (static_cast<unsigned char>(text[length]) & 0xC0) == 0x80) --length;
  return "'" + text.substr(0, length) + (text.size() > length ? "…'" : "'");
}

}  // namespace gradmeter::core::detail
