// SPDX-License-Identifier: Apache-2.0
// A log's lines as its tool printed them, without the text that launchers, collectors of logs and NCCL print before and
// within them.
#pragma once
#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace gradmeter::importers {

inline constexpr std::string_view digits = "0123456789";

/// Visits each line of the tool itself, with its number from 1: without its end, colours, and prefixes of launchers and
/// collectors of logs (mpirun's tags, srun's labels, times); without messages of NCCL: if one stands within a line, the
/// line's two sides are joined. A line that begins with # has no blanks before it.
void each_line(std::string_view text, const std::function<void(std::string_view line, std::size_t number)>&);
/// "line 1: 'node01 says ...'": the first line that is neither blank nor begins with #; empty: there is none.
std::string first_plain_line(std::string_view text);

std::vector<std::string> words_of(std::string_view line);
/// Whether a word is digits alone; and whether a line begins with such a word, and another number if it goes on.
bool is_count(std::string_view word);
bool begins_with_count(std::string_view line);

}  // namespace gradmeter::importers
