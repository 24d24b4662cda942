// A background task in virtual time, with a clock of its own.
#pragma once
#include <memory>

#include "dataparallel/simulation/context.hpp"
#include "dataparallel/simulation/messenger.hpp"

namespace gradmeter::dataparallel {

/// How many computations each worker's background task has made.
using Counts = std::vector<std::uint64_t>;

/// Starts the task at the running thread's time.
std::unique_ptr<BackgroundTask> launch(SimContext&, SimMessenger&, Counts&, int worker, BackgroundProgram);

}  // namespace gradmeter::dataparallel
