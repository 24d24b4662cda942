// A background task on a real rank: a thread, with a fabric that has computation and a clock.
#pragma once
#include <functional>
#include <memory>

#include "dataparallel/fabric.hpp"
#include "dataparallel/ranks/engine.hpp"

namespace gradmeter::dataparallel {

/// `owner` answers rank and size. `engine` is told of the task's errors, and when the task is destroyed without join,
/// which fails everything under way. Both must outlive it. threads: of its kernels.
std::unique_ptr<BackgroundTask> start_background_task(Fabric& owner, Engine& engine, int threads,
                                                      std::function<void(Fabric&)> program);

}  // namespace gradmeter::dataparallel
