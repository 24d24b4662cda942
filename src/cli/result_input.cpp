// SPDX-License-Identifier: Apache-2.0
#include "cli/result_input.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string_view>
#include <utility>

#include "analysis/launches.hpp"
#include "core/error.hpp"
#include "core/format.hpp"
#include "core/name.hpp"
#include "core/print.hpp"

namespace gradmeter::cli {

using core::UsageError;
namespace fs = std::filesystem;

std::vector<std::string> split_paths(const std::string& text) {
  std::error_code error;
  if (fs::exists(text, error)) return {text};
  std::vector<std::string> out;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    out.emplace_back(core::trim(std::string_view(text).substr(begin, end - begin)));
    if (out.back().empty())
      throw UsageError(fmt::format("'{}' has an empty name: write names of files parted by commas", text));
    begin = end + 1;
  }
  return out;
}

std::vector<fs::path> files_of(const std::string& word) {
  std::vector<fs::path> out;
  for (const auto& item : split_paths(word)) {
    std::error_code error;
    if (fs::is_directory(item, error)) {
      const auto inside = analysis::result_files(item);
      if (inside.empty()) throw UsageError(fmt::format("'{}' has no .jsonl file; name result files", item));
      out.insert(out.end(), inside.begin(), inside.end());
    } else {
      out.emplace_back(item);
    }
  }
  return out;
}

void refuse_too_many(const std::vector<std::string>& words) {
  constexpr std::uintmax_t least_bytes = 128;  // the least bytes of a point's line
  std::uintmax_t bytes = 0, lines = 0;
  std::vector<fs::path> files;
  for (const auto& word : words) {
    for (const auto& path : files_of(word)) {
      std::error_code error;
      if (!fs::is_regular_file(path, error)) continue;
      bytes += fs::file_size(path, error);
      files.push_back(path);
    }
  }
  if (bytes <= least_bytes * most_points) return;
  std::vector<char> part(1 << 20);
  for (const auto& path : files) {
    std::ifstream in(path, std::ios::binary);
    while (in.read(part.data(), static_cast<std::streamsize>(part.size())), in.gcount() > 0) {
      lines += static_cast<std::uintmax_t>(std::count(part.begin(), part.begin() + in.gcount(), '\n'));
      if (lines <= most_points) continue;
      throw UsageError(fmt::format(
          "'{}': more than {} points, which could take over 4 GB of memory at once; name fewer files, or take the runs "
          "that matter out of it: grep RUN_ID {} > part.jsonl",
          path.string(), most_points, path.string()));
    }
  }
}

std::vector<core::Run> runs_of(const std::string& word, core::Reading reading) {
  std::vector<core::Run> out;
  for (const auto& path : files_of(word)) {
    auto file = core::read_results(path, reading, core::RawTimes::left_out);
    if (!file.note.empty()) core::print(stderr, "{}\n", core::printable(file.note));
    for (const auto& line : file.left_out) core::print(stderr, "left out: {}\n", core::printable(line));
    core::erase_superseded_points(file.runs);
    std::move(file.runs.begin(), file.runs.end(), std::back_inserter(out));
  }
  if (out.empty()) throw UsageError(fmt::format("'{}' has no run; name result files that have one", word));
  return out;
}

namespace {

/// True for a file that begins as result files do, whether or not the rest of it can be read.
bool begins_with_run(const fs::path& path) {
  std::error_code error;
  if (!fs::is_regular_file(path, error)) return false;
  std::string text(32, '\0');
  std::ifstream in(path, std::ios::binary);
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  std::erase(text, ' ');  // other programs may write blanks
  return text.starts_with("{\"kind\":\"run\"");
}

}  // namespace

void refuse_result_files(const bench::Flags& f, std::initializer_list<const char*> outputs) {
  for (const char* flag : outputs) {
    const std::string path = f.has(flag) ? f.text(flag) : "";
    if (path.empty() || path == "-") continue;
    bool is_input = false;
    for (const auto& word : f.words()) {
      for (const auto& input : files_of(word)) {
        std::error_code error;
        is_input |= fs::equivalent(input, path, error);
      }
    }
    if (is_input || begins_with_run(path))
      throw UsageError(fmt::format("--{} {}: this is a {}, and its measurements would be lost; give another name", flag,
                                   core::printable(path), is_input ? "file to read" : "result file"));
  }
}

void write_text(const std::string& path, const std::function<void(std::ostream&)>& write) {
  if (path == "-") {
    std::ostringstream text;
    write(text);
    core::print_unchanged(std::move(text).str());
    return;
  }
  errno = 0;
  std::ofstream out(path, std::ios::binary);
  if (!out)
    throw UsageError(fmt::format("'{}' cannot be written: {}; name one in a folder that you may write to, by -o",
                                 core::printable(path), errno ? std::strerror(errno) : "it cannot be opened"));
  write(out);
  out.close();
  if (!out) throw core::BackendError("file system", "write", fmt::format("'{}' could not be written", path));
}

void write_text(const std::string& path, const std::string& text) {
  write_text(path, [&text](std::ostream& out) { out << text; });
}

}  // namespace gradmeter::cli
