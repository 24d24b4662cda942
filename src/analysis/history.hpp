// The past results of machines in a directory: the baseline of today's.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "analysis/launches.hpp"

namespace gradmeter::analysis {

/// The result files in a directory, sorted by name. Errors: UsageError where it is none.
std::vector<std::filesystem::path> result_files(const std::filesystem::path& directory);

/// The newest `most` launches in the directory on the machine of `now` (hosts, processor, GPUs), other than those of
/// `now` themselves. None: a side without runs.
Side past_of(const Side& now, const std::filesystem::path& directory, std::size_t most, core::Reading);

/// Copies a result file into the directory, named by its first run's time and id, whole or not at all (a temporary file
/// is renamed). Returns the path; nothing is written where it is there already. Errors: BackendError.
std::filesystem::path keep(const std::filesystem::path& file, const core::RunInfo& first,
                           const std::filesystem::path& directory);

}  // namespace gradmeter::analysis
