#include "dataparallel/ranks/engine.hpp"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "runtime/communicator.hpp"
#include "runtime/time/time_slices.hpp"

namespace gradmeter::dataparallel {

const Completion& EngineOperation::completion() const {
  if (!done()) throw std::logic_error("a call's completion was asked for before it was done");
  return completion_;
}

Engine::Engine(ProgressMode mode, runtime::SpinPolicy spin_policy, runtime::Activity& activity)
    : mode_(mode), backoff_(spin_policy), activity_(activity) {
  if (mode_ == ProgressMode::thread) thread_ = std::thread([this] { run(); });
}

Engine::~Engine() {
  if (!thread_.joinable()) return;
  const auto all_left = [this] {
    const std::lock_guard lock(mutex_);
    return attached_.empty() &&
           std::all_of(pollables_.begin(), pollables_.end(), [](const Pollable* p) { return p->idle(); });
  };
  while (runtime::may_free() && !failed_.load(std::memory_order_acquire) && !all_left()) std::this_thread::yield();
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    wake();
  }
  thread_.join();
}

void Engine::submit(EngineTicket op) {
  op->completion_.posted = runtime::host_clock();
  if (mode_ == ProgressMode::on_wait) {
    active_.push_back(std::move(op));
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    submitted_.push_back(std::move(op));
    wake();
  }
}

void Engine::take_submitted() {
  for (auto& op : submitted_) active_.push_back(std::move(op));
  submitted_.clear();
  pollables_.insert(pollables_.end(), attached_.begin(), attached_.end());
  attached_.clear();
}

bool Engine::poll_one(EngineOperation& op) {
  if (!op.started_) {
    if (op.ready_ && !op.ready_->reached()) return false;
    op.completion_.started = runtime::host_clock();
    op.start();
    op.started_ = true;
  }
  if (!op.advance()) return false;
  op.completion_.finished = runtime::host_clock();
  op.done_.store(true, std::memory_order_release);
  op.done_.notify_all();
  return true;
}

void Engine::attach(Pollable& p) {
  if (mode_ != ProgressMode::thread) throw std::logic_error("messages need a progress thread");
  const std::lock_guard lock(mutex_);
  attached_.push_back(&p);
  wake();
}

void Engine::report(std::exception_ptr e) {
  const std::lock_guard lock(mutex_);
  if (!reported_) reported_ = std::move(e);
  wake();
}

void Engine::hold(bool yes) {
  if (mode_ != ProgressMode::thread) return;
  std::unique_lock lock(mutex_);
  holds_ += yes ? 1 : -1;
  wake();
  if (yes) parking_.wait(lock, [this] { return parked_; });
  for (const auto* all : {&pollables_, &attached_}) {
    for (Pollable* p : *all) p->pause(holds_ > 0);
  }
}

bool Engine::poll() {
  bool moved = false;
  for (Pollable* p : pollables_) moved |= p->poll();
  std::vector<int> held;  // orders with a call that those after it must wait for
  for (std::size_t i = 0; i < active_.size();) {
    EngineOperation& op = *active_[i];
    const bool behind = !op.started_ && std::find(held.begin(), held.end(), op.order_) != held.end();
    if (!behind && poll_one(op)) {
      active_.erase(active_.begin() + static_cast<std::ptrdiff_t>(i));
      moved = true;
      continue;
    }
    if (op.order_ >= 0 || !op.started_) held.push_back(op.order_);
    ++i;
  }
  return moved;
}

void Engine::note_waiting(const EngineOperation& op) {
  const allreduce::Waiting w = op.started_ ? op.waiting() : allreduce::Waiting{};
  activity_.waiting({.operation = op.label_,
                     .peer = w.peer < 0 ? -1 : op.world_rank(w.peer),
                     .round = w.rounds ? static_cast<int>(w.round) - 1 : -1,
                     .rounds = w.rounds ? static_cast<int>(w.rounds) : -1});
}

void Engine::wait(EngineOperation& op) {
  if (mode_ == ProgressMode::thread) {
    while (!op.done()) op.done_.wait(false, std::memory_order_acquire);
    if (failed_.load(std::memory_order_acquire)) std::rethrow_exception(error_);
    return;
  }
  bool waited = false;
  while (!op.done()) {
    if (poll()) {
      activity_.beat();
      backoff_.reset();
    } else {
      note_waiting(op);
      waited = true;
      backoff_.wait();
    }
  }
  if (waited) activity_.wait_ended();
}

void Engine::fail(std::exception_ptr e) {
  // Only the first error is kept: it is the cause, and the computing thread may be reading it already.
  if (!failed_.load(std::memory_order_relaxed)) error_ = std::move(e);
  failed_.store(true, std::memory_order_release);
  abandon();
}

/// What came before the error and what comes after it: who waits for it finds the error.
void Engine::abandon() {
  for (Pollable* p : pollables_) p->fail(error_);
  for (auto& op : active_) {
    op->done_.store(true, std::memory_order_release);
    op->done_.notify_all();
  }
  active_.clear();
}

/// Sleeps while there is nothing to move, or in a pause. False: the end.
bool Engine::await_work() {
  std::unique_lock lock(mutex_);
  const auto has_work = [this] {
    return reported_ || !submitted_.empty() || !active_.empty() || !attached_.empty() ||
           (!pollables_.empty() && !failed_);
  };
  const auto may_go_on = [&] { return stop_ || (holds_ == 0 && has_work()); };
  if (!may_go_on()) {
    parked_ = true;
    parking_.notify_all();
    work_.wait(lock, may_go_on);
    parked_ = false;
  }
  take_submitted();
  if (reported_) fail(std::exchange(reported_, nullptr));
  if (failed_) abandon();
  return !stop_;  // calls still under way then were abandoned by an error
}

/// Messages are polled for by those who wait for them too. So where cores are shared and there is nothing else, this
/// thread leaves its core to whoever computes.
void Engine::wait() {
  if (!active_.empty() || pollables_.size() != 1 || !backoff_.may_sleep()) return backoff_.wait();
  pollables_.front()->doze([this] {
    const std::lock_guard lock(mutex_);
    return stop_ || holds_ > 0 || reported_ || !submitted_.empty() || !attached_.empty();
  });
}

void Engine::wake() {
  work_.notify_one();
  for (Pollable* p : pollables_) p->wake();
}

void Engine::run() {
  runtime::request_short_time_slices();
  while (await_work()) {
    try {
      if (poll()) {
        activity_.wait_ended();
        backoff_.reset();
      } else {
        if (!active_.empty()) note_waiting(*active_.front());
        wait();
      }
    } catch (...) {
      fail(std::current_exception());
    }
  }
}

}  // namespace gradmeter::dataparallel
