// SPDX-License-Identifier: Apache-2.0
// Reads result files that are words of a command line: files, folders, comma lists.
#pragma once
#include <filesystem>
#include <functional>
#include <iosfwd>
#include <string>
#include <vector>

#include "core/result_file.hpp"

namespace gradmeter::cli {

/// The files that a word names; for a folder its *.jsonl. Errors: UsageError for a folder without one.
std::vector<std::filesystem::path> files_of(const std::string& word);

/// The most points of a command. All of them are in memory at once: up to 10 KB each, so up to 4 GB.
inline constexpr std::size_t most_points = 400'000;
/// Counts the lines of files that are large enough to have too many, before any file is read.
/// Errors: UsageError where the files of all words have more than `most_points` together.
void refuse_too_many(const std::vector<std::string>& words);

/// The runs of the files that a word names, without raw times. Parts that were torn or left out are named on standard
/// error. Errors: UsageError where there is no run.
std::vector<core::Run> runs_of(const std::string& word, core::Reading);

/// Writes to a file, or with "-" to standard output. Errors: UsageError where the file cannot be opened, BackendError
/// where not all of the text can be written.
void write_text(const std::string& path, const std::string& text);
/// Gives `write` a stream to the path, so that a file's text need not be held in memory.
void write_text(const std::string& path, const std::function<void(std::ostream&)>& write);

}  // namespace gradmeter::cli
