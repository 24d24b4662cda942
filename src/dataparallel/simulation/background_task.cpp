#include "dataparallel/simulation/background_task.hpp"

#include <exception>
#include <utility>

#include "core/format.hpp"
#include "dataparallel/simulation/compute.hpp"

namespace gradmeter::dataparallel {
namespace {

class SimBackgroundTask final : public BackgroundTask {
 public:
  SimBackgroundTask(SimContext& g, SimMessenger& messenger, Counts& counts, int worker, BackgroundProgram program)
      : g_(g), launcher_(g.scheduler.running_thread()) {
    thread_ = g.scheduler.spawn(fmt::format("the background task of rank {}", worker),
                                [this, &messenger, &counts, worker, program = std::move(program)] {
                                  run(messenger, counts[static_cast<std::size_t>(worker)], worker, program);
                                });
  }
  SimBackgroundTask(const SimBackgroundTask&) = delete;
  SimBackgroundTask& operator=(const SimBackgroundTask&) = delete;
  ~SimBackgroundTask() override { g_.scheduler.stop(thread_); }

  void join() override {
    while (!has_returned_) {
      is_awaited_ = true;
      g_.scheduler.block(launcher_, "the end of its background task");
      is_awaited_ = false;
    }
    if (const double end = g_.scheduler.now(thread_); end > g_.scheduler.now(launcher_)) {
      g_.scheduler.block(launcher_, "the end of its background task", end);
    }
    if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
  }

 private:
  void run(SimMessenger& messenger, std::uint64_t& count, int worker, const BackgroundProgram& program) {
    try {
      SimCompute<ExecutionContext> context(g_, worker, thread_, g_.simulated.background_slowdown, count);
      program(context);
      // Its last message's memory is read until it has left: then the memory is free, and all its calls are done.
      const double left = messenger.take_last_send_end(thread_);
      if (left > g_.scheduler.now(thread_)) g_.scheduler.block(thread_, "its last message to leave", left);
    } catch (const EventScheduler::Stopped&) {
      throw;
    } catch (...) {
      error_ = std::current_exception();
      g_.scheduler.suspect(error_);
    }
    has_returned_ = true;
    if (is_awaited_) g_.scheduler.wake(launcher_, g_.scheduler.now(thread_));
  }

  SimContext& g_;
  const int launcher_;
  int thread_ = -1;
  bool has_returned_ = false, is_awaited_ = false;
  std::exception_ptr error_;
};

}  // namespace

std::unique_ptr<BackgroundTask> launch(SimContext& g, SimMessenger& messenger, Counts& counts, int worker,
                                       BackgroundProgram program) {
  return std::make_unique<SimBackgroundTask>(g, messenger, counts, worker, std::move(program));
}

}  // namespace gradmeter::dataparallel
