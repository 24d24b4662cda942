// The table of sizes that the cost model gives for a machine, for `auto:machine=FILE`.
#pragma once
#include <filesystem>
#include <string>

#include "allreduce/request.hpp"
#include "core/machine.hpp"

namespace gradmeter::allreduce {

/// At each power of two from 1 KiB to 64 MiB the algorithm with a schedule whose slowest rank ends first by
/// `hockney_finish_times`, of those that the request allows. Errors: UsageError when it allows none.
/// Cost: O(steps of all schedules) a size.
std::string predicted_table(const core::Machine&, const Request&);

/// Errors: UsageError naming the file: it cannot be read, or what it holds is no machine.
core::Machine read_machine_file(const std::filesystem::path&);

}  // namespace gradmeter::allreduce
