// SPDX-License-Identifier: Apache-2.0
// The lines of a log as its tool printed them. Text that launchers, collectors of logs and NCCL print before and within
// them is removed.
#pragma once
#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace gradmeter::importers {

inline constexpr std::string_view digits = "0123456789";

/// Visits each line of the tool itself, with its number from 1. Line ends, colours, and prefixes of launchers and
/// collectors of logs (mpirun's tags, srun's labels, times) are removed. So are messages of NCCL: if one stands within
/// a line, the two sides of it are joined. Blanks before a line that begins with # are removed too.
void each_line(std::string_view text, const std::function<void(std::string_view line, std::size_t number)>&);
/// "line 1: 'node01 says ...'": the first line that is neither blank nor begins with #; empty: there is none.
std::string first_plain_line(std::string_view text);

std::vector<std::string> words_of(std::string_view line);
/// is_count: whether a word has digits only. begins_with_count: whether a line begins with such a word, and the next
/// word, if there is one, begins a number too.
bool is_count(std::string_view word);
bool begins_with_count(std::string_view line);

}  // namespace gradmeter::importers
