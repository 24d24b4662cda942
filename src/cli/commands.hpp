// SPDX-License-Identifier: Apache-2.0
// Functions that read the flags of subcommands, and that make lists and texts about them.
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

/// All commands, in the order of the help. main.cpp defines them.
std::span<const Command* const> commands();

/// Reads flags by Boost.Program_options. Boost's messages are replaced by messages that say what is wrong and which
/// flags exist.
/// Errors: UsageError for an unknown flag (with the nearest known one), a missing value, a flag given twice, a word
/// that belongs to no flag.
Flags parse_flags(std::string_view command, const Usage&, const std::vector<std::string>& arguments);
/// The text that `--help` prints: what the command is about, and its flags.
std::string help_text(const Usage&);

}  // namespace gradmeter::cli
