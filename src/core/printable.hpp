// Text of others, fit for terminals, pages and tables.
#pragma once
#include <string>
#include <string_view>

namespace gradmeter::core {

/// UTF-8 without what a terminal would obey, what turns the direction of writing, and what XML has no place for: line
/// ends and tabs become blanks, other control characters (C0, DEL, C1), bidirectional controls and U+FFFE, U+FFFF
/// and what is no UTF-8 become U+FFFD.
std::string printable(std::string_view text);
/// The same of a text of several lines: its line ends and tabs stay.
std::string printable_lines(std::string_view text);

}  // namespace gradmeter::core
