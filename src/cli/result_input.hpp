// Result files as words of a command line: files, folders, comma lists.
#pragma once
#include <filesystem>
#include <functional>
#include <iosfwd>
#include <string>
#include <vector>

#include "core/result_file.hpp"

namespace gradmeter::cli {

/// The files that a word names; of a folder its *.jsonl. Errors: UsageError for a folder without one.
std::vector<std::filesystem::path> files_of(const std::string& word);

/// All points of a command are in memory at once, 10 KB each where they have much to say: 4 GB.
inline constexpr std::size_t most_points = 400'000;
/// Counts lines, of files that are large enough to have too many, before any is read.
/// Errors: UsageError where the files of all words have more than `most_points` together.
void refuse_too_many(const std::vector<std::string>& words);

/// Their runs, without raw times. What was torn or left out is said on standard error. Errors: UsageError where there
/// is none.
std::vector<core::Run> runs_of(const std::string& word, core::Reading);

/// To a file, or with "-" to standard output. Errors: BackendError.
void write_text(const std::string& path, const std::string& text);
/// Likewise what `write` writes, a file as it comes.
void write_text(const std::string& path, const std::function<void(std::ostream&)>& write);

}  // namespace gradmeter::cli
