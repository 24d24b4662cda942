// Texts as parts of something that is taken apart again: keys, and command lines.
#pragma once
#include <string>
#include <string_view>

namespace gradmeter::core {

/// As a part of a key whose parts blanks or bars separate: these and backslashes have a backslash before them.
std::string key_part(std::string_view text);

/// In single quotes of a POSIX shell, byte for byte.
std::string shell_quoted(std::string_view text);

/// As one word of a command line of a POSIX shell, on one line and printable: in quotes where a shell would do
/// something with it.
std::string shell_word(std::string_view text);

}  // namespace gradmeter::core
