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
/// Only the running thread makes calls, except `run`; it calls `advance` and `block` for itself.
/// Cost: a switch is O(log threads) and a wake-up by the operating system.
class EventScheduler {
 public:
  static constexpr double forever = std::numeric_limits<double>::infinity();
  /// Thrown in a thread to end it: its stop time has come, or the run has failed. Code that catches all exceptions must
  /// rethrow it.
  struct Stopped {};

  explicit EventScheduler(int threads);

  /// Runs body(rank) on as many threads as there are ranks; returns when these and all spawned threads are done. The
  /// first exception that a body throws is rethrown; the other threads then end with `Stopped`. Errors:
  /// std::logic_error on a deadlock, with a text that says who waits, and who was stopped before.
  void run(const std::function<void(int rank)>& body);
  /// Starts another thread, at the caller's time, and returns its number. It has the caller's stop time. `name` is for
  /// the text of a deadlock.
  int spawn(std::string name, std::function<void()> body);

  double now(int thread) const { return threads_[static_cast<std::size_t>(thread)].clock; }
  int running_thread() const { return running_thread_; }
  /// Adds time to this thread's clock; threads with earlier clocks run before it continues.
  void advance(int thread, double seconds);
  /// Sleeps until `wake` is called for this thread, or until the time `until`; `why` says what it waits for.
  void block(int thread, std::string why, double until = forever);
  /// Wakes a blocked thread at `time`, or at its own clock, whichever is later. If there are several calls, the
  /// earliest time counts. It has no effect on a thread that does not sleep.
  void wake(int thread, double time);

  /// Ends a thread, by `Stopped`, when it reaches this time. It may be called for a thread that has not begun or that
  /// sleeps, and by a thread for itself.
  void stop_at(int thread, double time);
  /// Ends a spawned thread where it sleeps, and waits until it has ended, so that it ends before objects that it uses
  /// are destroyed. It ends at once if the run has failed. Does nothing if the thread has ended already.
  void stop(int thread) noexcept;
  bool ended(int thread) const { return threads_[static_cast<std::size_t>(thread)].state == State::ended; }
  /// Notes an exception that no thread has taken yet. The next deadlock throws it instead, as its likely cause.
  void suspect(std::exception_ptr e);

 private:
  enum class State { runnable, blocked, ended };
  struct Thread {
    std::condition_variable turn, end;
    State state = State::runnable;
    double clock = 0;
    double wakes = 0;       ///< time at which it runs next, unless it is woken earlier
    double stop = forever;  ///< its stop time
    bool stopped = false;   ///< true: it ended at its stop time
    std::string name, why;
    std::vector<int> awaited_by;  ///< threads that wait in `stop` for its end
    std::thread thread;
  };
  Thread& at(int thread) { return threads_[static_cast<std::size_t>(thread)]; }
  void start(int thread, std::function<void()> body);
  void queue(int thread, double time);  ///< this function and those below must be called with the mutex held
  void pass();                          ///< picks the next running thread
  void finish(int thread);
  void wait_for_turn(std::unique_lock<std::mutex>&, int thread);
  void sleep(std::unique_lock<std::mutex>&, int thread, double until);
  std::string deadlock() const;
  void fail(std::exception_ptr);

  std::mutex mutex_;
  const std::size_t ranks_;
  std::deque<Thread> threads_;              ///< by number; a deque keeps their addresses
  std::set<std::pair<double, int>> queue_;  ///< the first one runs next; threads that sleep for ever are not in it
  int running_thread_ = 0;
  std::exception_ptr error_, suspect_;
};

}  // namespace gradmeter::dataparallel
