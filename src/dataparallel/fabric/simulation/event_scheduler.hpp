// SPDX-License-Identifier: Apache-2.0
// Cooperative scheduling of threads in virtual time. One thread runs at a time, always the one with the earliest clock,
// so a run depends on its inputs alone.
#pragma once
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <limits>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace gradmeter::dataparallel {

/// Times are in virtual seconds. Threads are numbered: the ranks first, then spawned threads in the order of spawning.
/// Except for `run`, only the running thread calls these functions; it may call `advance` and `block` only for itself.
/// Cost: a switch takes O(log threads) and a wake-up by the operating system.
class EventScheduler {
 public:
  static constexpr double forever = std::numeric_limits<double>::infinity();
  /// Thrown in a thread to end it: its stop time has come, or the run has failed. Code that catches all exceptions must
  /// rethrow it.
  struct Stopped {};

  explicit EventScheduler(int ranks);

  /// Runs body(rank) for every rank, each on its own thread; returns when these and all spawned threads have ended. If
  /// a body throws, all other threads end with `Stopped`, and the exception is rethrown. Errors: std::logic_error on a
  /// deadlock, with a text that says which threads wait, and which were stopped before.
  void run(const std::function<void(int rank)>& body);
  /// Starts another thread, with the caller's clock and stop time, and returns its number. `name` is for the text of a
  /// deadlock.
  int spawn(std::string name, std::function<void()> body);

  double now(int thread) const { return threads_[static_cast<std::size_t>(thread)].clock; }
  int running_thread() const { return running_thread_; }
  /// Adds time to this thread's clock; threads with earlier clocks run before this one continues.
  void advance(int thread, double seconds);
  /// Sleeps until `wake` is called for this thread, or until the time `until`; `why` says what the thread waits for.
  void block(int thread, std::string why, double until = forever);
  /// Wakes a blocked thread at `time`, or at its own clock, whichever is later. If a thread is woken several times, the
  /// earliest counts. Waking a thread that does not sleep has no effect.
  void wake(int thread, double time);

  /// Sets the stop time of a thread, at which `Stopped` ends it. The thread may be the caller, or one that sleeps or
  /// has not begun.
  void stop_at(int thread, double time);
  /// Ends a spawned thread, which sleeps or has not begun, and waits until it has ended, so that objects that it uses
  /// can be destroyed. If the run has failed, the thread ends by itself, and the caller only waits for it. Does nothing
  /// if the thread has ended already.
  void stop(int thread) noexcept;
  bool ended(int thread) const { return threads_[static_cast<std::size_t>(thread)].state == State::ended; }
  /// Notes an exception that ended a background task, and that `BackgroundTask::join` will rethrow to its caller.
  /// If the run ends in a deadlock, `run` throws the first such exception, its likely cause, instead of a logic_error.
  void suspect(std::exception_ptr e);

 private:
  enum class State { runnable, blocked, ended };
  struct Thread {
    std::condition_variable turn, end;  ///< notified when the thread may run, and when it has ended
    State state = State::runnable;
    double clock = 0;
    double wake_time = 0;   ///< time at which the thread runs next, unless it is woken earlier
    double stop = forever;  ///< stop time
    bool stopped = false;   ///< true: the thread ended at its stop time
    std::string name, why;
    std::vector<int> awaited_by;  ///< threads that wait in `stop` for this thread's end
    std::thread thread;
  };
  Thread& at(int thread) { return threads_[static_cast<std::size_t>(thread)]; }
  void start(int thread, std::function<void()> body);
  // The functions below must be called with the mutex held.
  void queue(int thread, double time);  ///< sets the time at which the thread runs next
  void pass();                          ///< lets the thread with the earliest time run
  void finish(int thread);
  void wait_for_turn(std::unique_lock<std::mutex>&, int thread);
  void sleep(std::unique_lock<std::mutex>&, int thread, double until);
  std::string deadlock_text() const;
  void fail(std::exception_ptr);

  std::mutex mutex_;
  const std::size_t ranks_;
  std::deque<Thread> threads_;  ///< by number; in a deque, threads keep their addresses
  /// The time at which each thread runs next, earliest first, and its number. Threads that sleep for ever are left out.
  std::set<std::pair<double, int>> queue_;
  int running_thread_ = 0;
  std::exception_ptr error_, suspect_;
};

}  // namespace gradmeter::dataparallel
