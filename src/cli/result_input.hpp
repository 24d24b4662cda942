// SPDX-License-Identifier: Apache-2.0
// Reads the result files that are named on a command line: files, folders, comma lists.
#pragma once
#include <filesystem>
#include <functional>
#include <initializer_list>
#include <iosfwd>
#include <string>
#include <vector>

#include "bench/engine/flags.hpp"
#include "core/result_file.hpp"

namespace gradmeter::cli {

/// The paths in a text: the text itself where a file or folder has this name, else its parts between commas. Errors:
/// UsageError for an empty part.
std::vector<std::string> split_paths(const std::string& text);

/// The files that a word of the command line names (a comma list of files and folders); for a folder the *.jsonl files
/// in it. Errors: UsageError for a folder without such a file.
std::vector<std::filesystem::path> files_of(const std::string& word);

/// The most points that a command reads. All are in memory at once, up to 10 KB each, so up to 4 GB.
inline constexpr std::size_t most_points = 400'000;
/// Must be called before any file is parsed. Errors: UsageError if the files have more than `most_points` lines
/// together. Lines are counted only if the files are large enough to hold so many points.
void refuse_too_many(const std::vector<std::string>& words);

/// The runs in the files that a word names, without raw times. A torn last line, and lines that cannot be used, are
/// reported on standard error. Errors: UsageError if the files have no run.
std::vector<core::Run> runs_of(const std::string& word, core::Reading);

/// Must be called before anything is written. Errors: UsageError if a flag in `outputs` names a result file or a file
/// that the command reads, since the output would overwrite the measurements in it.
void refuse_result_files(const bench::Flags&, std::initializer_list<const char*> outputs);

/// Writes to a file, or with "-" to standard output. Errors: UsageError if the file cannot be opened, BackendError if
/// not all of the text can be written.
void write_text(const std::string& path, const std::string& text);
/// Gives `write` a stream to the path, so that a file's text need not be held in memory.
void write_text(const std::string& path, const std::function<void(std::ostream&)>& write);

}  // namespace gradmeter::cli
