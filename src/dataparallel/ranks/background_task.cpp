#include "dataparallel/ranks/background_task.hpp"

#include <exception>
#include <thread>
#include <utility>

#include "core/error.hpp"
#include "kernels/threads.hpp"
#include "runtime/time/clock.hpp"

namespace gradmeter::dataparallel {
namespace {

class ThreadContext final : public ExecutionContext {
 public:
  explicit ThreadContext(const ExecutionContext& owner) : owner_(owner) {}
  int rank(Group g) const override { return owner_.rank(g); }
  int size(Group g) const override { return owner_.size(g); }
  void submit(std::string_view label, runtime::Cost, const runtime::Work& work) override {
    const double begin = runtime::host_clock();
    work();
    if (log_) log_->push_back({label, {begin, runtime::host_clock()}});
  }
  void log_to(ComputeLog* log) override { log_ = log; }
  double now() const override { return runtime::host_clock(); }

 private:
  const ExecutionContext& owner_;
  ComputeLog* log_ = nullptr;
};

class ThreadTask final : public BackgroundTask {
 public:
  ThreadTask(const ExecutionContext& owner, Engine& engine, int threads, BackgroundProgram program)
      : engine_(engine), thread_([this, &owner, threads, program = std::move(program)] {
          try {
            kernels::set_compute_threads(threads);
            ThreadContext context(owner);
            program(context);
          } catch (...) {
            error_ = std::current_exception();
            engine_.report(error_);
          }
        }) {}

  ~ThreadTask() override {
    if (!thread_.joinable()) return;
    // The task will not be told to end, because an error is unwinding its owner.
    engine_.report(
        std::make_exception_ptr(core::BackendError("dataparallel", "background task", "its worker ended before it")));
    thread_.join();
  }

  void join() override {
    thread_.join();
    if (error_) std::rethrow_exception(error_);
  }

 private:
  Engine& engine_;
  std::exception_ptr error_;
  std::thread thread_;
};

}  // namespace

std::unique_ptr<BackgroundTask> start_background_task(const ExecutionContext& owner, Engine& engine, int threads,
                                                      BackgroundProgram program) {
  return std::make_unique<ThreadTask>(owner, engine, threads, std::move(program));
}

}  // namespace gradmeter::dataparallel
