// A program beside a worker, with a clock of its own.
#pragma once
#include <functional>
#include <memory>

#include "dataparallel/simulation/context.hpp"
#include "dataparallel/simulation/messenger.hpp"

namespace gradmeter::dataparallel {

/// How many computations the program beside each worker has made.
using Counts = std::vector<std::uint64_t>;

/// Starts the program at the holder's now.
std::unique_ptr<BackgroundTask> launch(SimContext&, SimMessenger&, Counts&, int worker,
                                       std::function<void(Fabric&)> program);

}  // namespace gradmeter::dataparallel
