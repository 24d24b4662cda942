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

/// Their runs, without raw times. What was torn or left out is said on standard error. Errors: UsageError where there
/// is none.
std::vector<core::Run> runs_of(const std::string& word, core::Reading);

/// To a file, or with "-" to standard output. Errors: BackendError.
void write_text(const std::string& path, const std::string& text);
/// Likewise what `write` writes, a file as it comes.
void write_text(const std::string& path, const std::function<void(std::ostream&)>& write);

}  // namespace gradmeter::cli
