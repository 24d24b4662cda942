// A program beside the worker on a real rank: a thread, with a fabric that can compute and tell the time.
#pragma once
#include <functional>
#include <memory>

#include "dataparallel/fabric.hpp"
#include "dataparallel/ranks/engine.hpp"

namespace gradmeter::dataparallel {

/// `owner` answers who and how many; `engine` hears of the program's errors, and of its end before its time: whoever
/// destroys a companion that was not joined ends everything that is under way. Both must outlive it.
/// threads: that its kernels use.
std::unique_ptr<BackgroundTask> start_background_task(Fabric& owner, Engine& engine, int threads,
                                                      std::function<void(Fabric&)> program);

}  // namespace gradmeter::dataparallel
