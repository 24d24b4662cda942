// Clean endings: SIGINT, SIGTERM and SIGHUP become a flag that the program looks at, with a deadline.
#pragma once
#include <signal.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/descriptor.hpp"

namespace gradmeter::runtime {

/// Blocks the three signals in this thread and in all threads that start after it (OpenMP's, MPI's), and receives them
/// in a thread of its own: so make one first thing in `main`, before MPI. Children that the program forks inherit the
/// mask. A signal that was ignored at the start (nohup, background jobs) stays ignored.
///
/// After the first signal `pending()` says its number; if the program has not ended `grace` later, one line on standard
/// error says what this rank was doing and the process ends with 128 + signal. A second SIGINT ends it at once.
/// The grace is short because mpirun sends SIGKILL about a second after SIGTERM.
/// Errors: BackendError from the constructor when the kernel gives no descriptors.
/// Source: signalfd(2), sigwait(3): no code runs in a signal handler.
class SignalWatch {
 public:
  static constexpr std::chrono::milliseconds usual_grace{500};

  explicit SignalWatch(std::chrono::milliseconds grace = usual_grace);
  /// Stops the thread and restores the mask: in the thread that made it.
  ~SignalWatch();
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;

  /// The first signal that arrived, or 0. One relaxed load: ask as often as you like.
  int pending() const noexcept { return pending_.load(std::memory_order_relaxed); }

  /// What to say of a rank of this process in the last lines, "rank 2 waits for rank 3: ...", one for each `rank` (any
  /// address of its own). Called from the watching thread; when this returns, the former function of this rank is not
  /// running and will not be called again. Empty: nothing to say any more. Any thread.
  void describe_with(const void* rank, std::function<std::string()> describe);

 private:
  enum class Wakeup { stop, deadline, signal };
  using Clock = std::chrono::steady_clock;

  void watch();
  Wakeup wait(Clock::time_point deadline) const;
  int take_signal() const;
  [[noreturn]] void end(int signal, const char* why);

  const std::chrono::milliseconds grace_;
  std::atomic<int> pending_{0};
  std::mutex describe_mutex_;
  std::vector<std::pair<const void*, std::function<std::string()>>> descriptions_;  ///< in the order of their making
  sigset_t watched_{}, before_{};
  Descriptor signals_, stop_;
  std::thread thread_;
};

}  // namespace gradmeter::runtime
