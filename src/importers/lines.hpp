// SPDX-License-Identifier: Apache-2.0
// The lines of a log as its tool printed them, without what launchers, collectors of logs and NCCL print before and
// within them.
#pragma once
#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace gradmeter::importers {

inline constexpr std::string_view digits = "0123456789";

/// Visits each line of the tool itself, with its number from 1. Line ends, colours, and prefixes of launchers and
/// collectors of logs (mpirun's tags, srun's labels, times) are removed. Messages of NCCL are removed too; if one
/// stands within a line, the parts before and after it are joined. Blanks before a line that begins with # are removed.
void each_line(std::string_view text, const std::function<void(std::string_view line, std::size_t number)>&);
/// "line 1: 'node01 says ...'": the first line that is neither blank nor begins with #; empty: there is none.
std::string first_plain_line(std::string_view text);

std::vector<std::string> words_of(std::string_view line);
/// True if a word consists of digits.
bool is_count(std::string_view word);
/// True if a line begins with a word of digits, and the next word, if there is one, looks like a number, nan or inf.
bool begins_with_count(std::string_view line);

}  // namespace gradmeter::importers
