// Threads that take turns in virtual time: one runs at a time, always the one whose clock is earliest, so a run is a
// pure function of its inputs.
#pragma once
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

namespace gradmeter::dataparallel {

/// Times in virtual seconds. All calls but `run` come from the thread that holds the baton, for its own rank.
class Baton {
 public:
  explicit Baton(int threads);

  /// Runs body(rank) on as many threads as there are ranks; returns when all are done. The first exception thrown by a
  /// body is rethrown; the others then end with one as well. Errors: std::logic_error on a deadlock, with who waits.
  void run(const std::function<void(int rank)>& body);

  double now(int rank) const { return clock_[static_cast<std::size_t>(rank)]; }
  /// Time passes for this rank; others whose clocks are earlier run before it goes on.
  void advance(int rank, double seconds);
  /// Sleeps until `wake` is called for this rank; `why` names what it waits for.
  void block(int rank, std::string why);
  /// Makes a blocked rank runnable, at `time` or at its own clock, whichever is later.
  void wake(int rank, double time);

 private:
  enum class State { runnable, blocked, finished };
  void pass();  ///< picks the next holder; mutex held
  void wait_for_turn(std::unique_lock<std::mutex>&, int rank);
  void fail(std::unique_lock<std::mutex>&, std::exception_ptr);

  std::mutex mutex_;
  std::deque<std::condition_variable> turn_;  ///< by rank; a deque because they do not move
  std::vector<State> state_;
  std::vector<double> clock_;
  std::vector<std::string> why_;
  int holder_ = 0;
  std::exception_ptr error_;
};

}  // namespace gradmeter::dataparallel
