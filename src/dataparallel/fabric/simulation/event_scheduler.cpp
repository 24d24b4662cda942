// SPDX-License-Identifier: Apache-2.0
#include "dataparallel/fabric/simulation/event_scheduler.hpp"

#include <algorithm>
#include <stdexcept>

#include "core/format.hpp"

namespace gradmeter::dataparallel {

EventScheduler::EventScheduler(int ranks) : ranks_(static_cast<std::size_t>(ranks)) {
  for (int r = 0; r < ranks; ++r) threads_.emplace_back().name = fmt::format("rank {}", r);
}

void EventScheduler::run(const std::function<void(int)>& body) {
  {
    const std::lock_guard lock(mutex_);
    while (threads_.size() > ranks_) threads_.pop_back();
    queue_.clear();
    error_ = suspect_ = nullptr;
    for (int r = 0; r < static_cast<int>(ranks_); ++r) {
      at(r).state = State::runnable;
      at(r).stopped = false;
      queue(r, at(r).clock);
    }
    for (int r = 0; r < static_cast<int>(ranks_); ++r) start(r, [&body, r] { body(r); });
    pass();
  }
  // Only a thread that has not ended can spawn others, so all threads are known once the last one in the list has been
  // joined.
  for (std::size_t i = 0;; ++i) {
    std::thread next;
    {
      const std::lock_guard lock(mutex_);
      if (i == threads_.size()) break;
      next = std::move(threads_[i].thread);
    }
    next.join();
  }
  if (error_) std::rethrow_exception(error_);
}

void EventScheduler::start(int thread, std::function<void()> body) {
  at(thread).thread = std::thread([this, thread, body = std::move(body)]() mutable {
    try {
      {
        std::unique_lock lock(mutex_);
        wait_for_turn(lock, thread);
      }
      body();
      body = nullptr;  // its captures are destroyed while this is still the running thread
    } catch (const Stopped&) {
    } catch (...) {
      const std::lock_guard lock(mutex_);
      fail(std::current_exception());
    }
    const std::lock_guard lock(mutex_);
    finish(thread);
  });
}

int EventScheduler::spawn(std::string name, std::function<void()> body) {
  const std::lock_guard lock(mutex_);
  const int thread = static_cast<int>(threads_.size());
  const double now = at(running_thread_).clock, stop = at(running_thread_).stop;
  Thread& t = threads_.emplace_back();
  t.name = std::move(name);
  t.clock = now;
  t.stop = stop;
  queue(thread, now);
  start(thread, std::move(body));
  return thread;
}

void EventScheduler::queue(int thread, double time) {
  Thread& t = at(thread);
  t.wake_time = std::max(t.clock, std::min(time, t.stop));
  if (t.wake_time < forever) queue_.emplace(t.wake_time, thread);
}

void EventScheduler::finish(int thread) {
  Thread& t = at(thread);
  t.state = State::ended;
  for (const int waiting : t.awaited_by) {
    if (at(waiting).state == State::blocked) {
      queue_.erase({at(waiting).wake_time, waiting});
      queue(waiting, at(waiting).clock);
    }
  }
  t.end.notify_all();
  if (!error_) pass();
}

void EventScheduler::wait_for_turn(std::unique_lock<std::mutex>& lock, int thread) {
  Thread& t = at(thread);
  t.turn.wait(lock, [&] { return running_thread_ == thread || error_; });
  if (error_) throw Stopped();
  t.state = State::runnable;
  t.clock = std::max(t.clock, t.wake_time);
  if (t.clock < t.stop) return;
  t.stopped = true;
  throw Stopped();
}

void EventScheduler::fail(std::exception_ptr e) {
  if (!error_) error_ = std::move(e);
  for (auto& t : threads_) t.turn.notify_all();
}

void EventScheduler::pass() {
  if (!queue_.empty()) {
    running_thread_ = queue_.begin()->second;
    queue_.erase(queue_.begin());
    return at(running_thread_).turn.notify_all();
  }
  const bool all_ended =
      std::all_of(threads_.begin(), threads_.end(), [](const Thread& t) { return t.state == State::ended; });
  if (!all_ended) fail(suspect_ ? suspect_ : std::make_exception_ptr(std::logic_error(deadlock_text())));
}

std::string EventScheduler::deadlock_text() const {
  std::vector<std::string> parts;
  for (std::size_t r = 0; r < ranks_; ++r) {
    if (threads_[r].stopped) parts.push_back(fmt::format("{} died at {} s", threads_[r].name, threads_[r].stop));
  }
  for (const Thread& t : threads_) {
    if (t.state == State::blocked) parts.push_back(fmt::format("{} waits for {}", t.name, t.why));
  }
  return fmt::format("deadlock in virtual time: {}", fmt::join(parts, "; "));
}

void EventScheduler::sleep(std::unique_lock<std::mutex>& lock, int thread, double until) {
  queue(thread, until);
  pass();
  wait_for_turn(lock, thread);
}

void EventScheduler::advance(int thread, double seconds) {
  std::unique_lock lock(mutex_);
  sleep(lock, thread, at(thread).clock + seconds);
}

void EventScheduler::block(int thread, std::string why, double until) {
  std::unique_lock lock(mutex_);
  at(thread).state = State::blocked;
  at(thread).why = std::move(why);
  sleep(lock, thread, until);
}

void EventScheduler::wake(int thread, double time) {
  const std::lock_guard lock(mutex_);
  Thread& t = at(thread);
  if (t.state != State::blocked || std::max(time, t.clock) >= t.wake_time) return;
  queue_.erase({t.wake_time, thread});
  queue(thread, time);
}

void EventScheduler::stop_at(int thread, double time) {
  const std::lock_guard lock(mutex_);
  Thread& t = at(thread);
  t.stop = time;
  if (queue_.erase({t.wake_time, thread}) > 0 || t.state == State::blocked) queue(thread, t.wake_time);
}

void EventScheduler::stop(int thread) noexcept {
  std::unique_lock lock(mutex_);
  Thread& t = at(thread);
  if (t.state == State::ended) return;
  if (!error_) {
    const int self = running_thread_;
    queue_.erase({t.wake_time, thread});
    t.stop = std::min(t.stop, t.clock);
    queue(thread, t.clock);
    t.awaited_by.push_back(self);
    Thread& me = at(self);
    me.state = State::blocked;
    me.why = fmt::format("the end of {}", t.name);
    me.wake_time = forever;
    pass();
    me.turn.wait(lock, [&] { return (running_thread_ == self && t.state == State::ended) || error_; });
    me.state = State::runnable;
  }
  t.end.wait(lock, [&] { return t.state == State::ended; });
}

void EventScheduler::suspect(std::exception_ptr e) {
  const std::lock_guard lock(mutex_);
  if (!suspect_) suspect_ = std::move(e);
}

}  // namespace gradmeter::dataparallel
