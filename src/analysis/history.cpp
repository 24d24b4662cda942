#include "analysis/history.hpp"

#include <unistd.h>

#include <algorithm>
#include <set>
#include <system_error>

#include "analysis/conditions.hpp"
#include "core/error.hpp"
#include "core/format.hpp"

namespace gradmeter::analysis {
namespace {

namespace fs = std::filesystem;

void check(const std::error_code& error, const char* call, const fs::path& path) {
  if (error) throw core::BackendError("file system", call, fmt::format("'{}': {}", path.string(), error.message()));
}

/// Times and ids are made of these already; whatever a foreign file has must not leave the directory.
std::string file_name(const core::RunInfo& run) {
  std::string name = fmt::format("{}-{}", run.time, run.run_id);
  std::replace_if(
      name.begin(), name.end(), [](unsigned char c) { return !std::isalnum(c) && c != '-' && c != '.'; }, '_');
  return name + ".jsonl";
}

}  // namespace

std::vector<fs::path> result_files(const fs::path& directory) {
  std::error_code error;
  std::vector<fs::path> out;
  for (fs::directory_iterator entry(directory, error), end; !error && entry != end; entry.increment(error)) {
    if (entry->path().extension() == ".jsonl") out.push_back(entry->path());
  }
  if (error) {
    throw core::UsageError(fmt::format("cannot read the directory '{}': {}", directory.string(), error.message()));
  }
  std::sort(out.begin(), out.end());
  return out;
}

Side past_of(const Side& now, const fs::path& directory, std::size_t most, core::Reading reading) {
  std::set<std::string> own;
  for (const auto& run : now.runs) own.insert(run.info.run_id);
  const std::string machine = machine_of(now.runs.front().info);
  Side past{.name = "history", .runs = {}};
  for (const auto& path : result_files(directory)) {
    for (auto& run : core::read_results(path, reading, core::Samples::left_out).runs) {
      if (machine_of(run.info) == machine && own.insert(run.info.run_id).second) past.runs.push_back(std::move(run));
    }
  }
  std::stable_sort(past.runs.begin(), past.runs.end(),
                   [](const auto& x, const auto& y) { return x.info.time < y.info.time; });
  if (past.runs.size() > most) past.runs.erase(past.runs.begin(), past.runs.end() - static_cast<std::ptrdiff_t>(most));
  return past;
}

fs::path keep(const fs::path& file, const core::RunInfo& first, const fs::path& directory) {
  std::error_code error;
  fs::create_directories(directory, error);
  check(error, "mkdir", directory);
  fs::path kept = directory / file_name(first);
  if (fs::exists(kept, error)) return kept;
  const fs::path partial = directory / fmt::format(".{}.{}", kept.filename().string(), ::getpid());
  fs::copy_file(file, partial, error);
  check(error, "copy", partial);
  fs::rename(partial, kept, error);
  check(error, "rename", kept);
  return kept;
}

}  // namespace gradmeter::analysis
