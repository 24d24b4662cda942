// A background task on a real rank: a thread, which has computation and a clock.
#pragma once
#include <memory>

#include "dataparallel/execution_context.hpp"
#include "dataparallel/message.hpp"
#include "dataparallel/ranks/engine.hpp"

namespace gradmeter::dataparallel {

/// `owner` answers rank and size. `engine` is told of the task's errors, and when the task is destroyed without join,
/// which fails everything under way. Both must outlive it. threads: of its kernels.
std::unique_ptr<BackgroundTask> start_background_task(const ExecutionContext& owner, Engine& engine, int threads,
                                                      BackgroundProgram);

}  // namespace gradmeter::dataparallel
