// SPDX-License-Identifier: Apache-2.0
// The list of commands, and functions that parse the flags of a command and print its help.
#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bench/engine/command.hpp"

namespace gradmeter::cli {

using namespace bench;  // gives commands the engine's types, such as Flags, by their short names

/// The names that `gradmeter list KIND` shows; empty for an unknown kind.
std::vector<std::string> member_names(std::string_view kind);

/// All commands, in the order in which the help lists them. Defined in main.cpp.
std::span<const Command* const> commands();

/// Parses a command's arguments with Boost.Program_options, but with messages that point to the --help of `command`.
/// Errors: UsageError for an unknown flag (with the nearest known one), a missing value, a flag given twice, a word
/// that belongs to no flag.
Flags parse_flags(std::string_view command, const Usage&, const std::vector<std::string>& arguments);
/// The text that `COMMAND --help` prints: what the command is about, and its flags.
std::string help_text(const Usage&);

}  // namespace gradmeter::cli
