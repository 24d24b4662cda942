// Threads that take turns in virtual time: one runs at a time, always the one whose clock is earliest, so a run is a
// pure function of its inputs.
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

/// Times in virtual seconds. Threads are numbered: the ranks first, then those that were spawned, in that order. All
/// calls but `run` come from the thread that holds the baton; `advance` and `block` for itself.
/// Cost: a turn is O(log threads) and a wake-up of the operating system's.
class EventScheduler {
 public:
  static constexpr double forever = std::numeric_limits<double>::infinity();
  /// Ends a thread whose time has come, or whose run has failed. Whoever catches everything lets this through.
  struct Stopped {};

  explicit EventScheduler(int threads);

  /// Runs body(rank) on as many threads as there are ranks; returns when all are done, also the spawned ones. The first
  /// exception thrown by a body is rethrown; the others then end with `Stopped`. Errors: std::logic_error on a
  /// deadlock, with who waits, and who was stopped before.
  void run(const std::function<void(int rank)>& body);
  /// Another thread, from the holder's now on. It stops when the holder is to stop. Returns its number.
  /// `name`: for whoever reads that it waits.
  int spawn(std::string name, std::function<void()> body);

  double now(int thread) const { return threads_[static_cast<std::size_t>(thread)].clock; }
  /// Whoever runs.
  int running_thread() const { return running_thread_; }
  /// Time passes for this thread; others whose clocks are earlier run before it goes on.
  void advance(int thread, double seconds);
  /// Sleeps until `wake` is called for this thread, at most until a time; `why` names what it waits for.
  void block(int thread, std::string why, double until = forever);
  /// Wakes a blocked thread at `time`, or at its own clock, whichever is later; of several times the earliest counts.
  /// Has no effect on one that does not sleep.
  void wake(int thread, double time);

  /// The thread gets no further than this time: there it ends, by `Stopped`. For a thread that has not begun or sleeps,
  /// or for the caller.
  void stop_at(int thread, double time);
  /// Ends a spawned thread where it sleeps and waits until it is gone, at once where the run has failed: before what it
  /// uses is gone. Does nothing when it has ended.
  void stop(int thread) noexcept;
  bool ended(int thread) const { return threads_[static_cast<std::size_t>(thread)].state == State::ended; }
  /// Thrown instead of the next deadlock: its likely reason, an exception that nobody has taken yet.
  void suspect(std::exception_ptr e);

 private:
  enum class State { runnable, blocked, ended };
  struct Thread {
    std::condition_variable turn, end;
    State state = State::runnable;
    double clock = 0;
    double wakes = 0;       ///< when it runs next, unless woken earlier
    double stop = forever;  ///< where it ends
    bool stopped = false;   ///< it ended there
    std::string name, why;
    std::vector<int> awaited_by;  ///< threads in `stop`
    std::thread thread;
  };
  Thread& at(int thread) { return threads_[static_cast<std::size_t>(thread)]; }
  void start(int thread, std::function<void()> body);
  void queue(int thread, double time);  ///< mutex held, as for all below
  void pass();                          ///< picks the next holder
  void finish(int thread);
  void wait_for_turn(std::unique_lock<std::mutex>&, int thread);
  void sleep(std::unique_lock<std::mutex>&, int thread, double until);
  std::string deadlock() const;
  void fail(std::exception_ptr);

  std::mutex mutex_;
  const std::size_t ranks_;
  std::deque<Thread> threads_;              ///< by number; a deque because they do not move
  std::set<std::pair<double, int>> queue_;  ///< who runs next, but those who sleep for ever
  int running_thread_ = 0;
  std::exception_ptr error_, suspect_;
};

}  // namespace gradmeter::dataparallel
