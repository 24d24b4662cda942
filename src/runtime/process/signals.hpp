// SPDX-License-Identifier: Apache-2.0
// Orderly ends of the program. SIGINT, SIGTERM and SIGHUP set a flag, after which the program must end before a
// deadline. Warnings of schedulers (SIGUSR1, SIGUSR2, SIGXCPU) set another flag, which the program checks between
// points. `end_at_once` ends the process without a deadline, after it has called a function that the program has set.
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

#include "runtime/handle.hpp"

namespace gradmeter::runtime {

/// Sets a function that `end_at_once` calls before it ends the process, for example to append the run's end to the
/// result file. The function gets the exit code and the reason. It is called once, on the thread that ends the process,
/// and must neither throw nor wait for long. An empty function removes it. Any thread may call this.
void before_sudden_end(std::function<void(int code, const std::string& why)> handler);
/// Calls the function of `before_sudden_end`, then _exit: destructors do not run, since they would wait for ranks that
/// hang.
[[noreturn]] void end_at_once(int code, const std::string& why);

/// Blocks SIGINT, SIGTERM, SIGHUP and the warnings in the constructing thread and in all threads that start later
/// (OpenMP's, MPI's), and receives them on a thread of its own. So it must be made first in `main`, before MPI. Child
/// processes inherit the mask. A signal that was ignored at the start (nohup, background jobs) stays ignored.
///
/// After the first signal, `first_signal()` returns its number. If the program has not ended `grace` later, one line on
/// standard error says what this rank was doing, and the process ends with 128 + signal. A SIGINT that comes over 0.1 s
/// after the first signal ends it at once. The grace is short because mpirun sends SIGKILL about a second after
/// SIGTERM. A warning (SIGUSR1, SIGUSR2, SIGXCPU) has no deadline: the scheduler sends another signal when the time is
/// over. SIGXFSZ is blocked too, so that a write beyond the limit of file sizes fails with EFBIG instead.
/// Errors: BackendError from the constructor when the kernel gives no descriptors.
/// Source: signalfd(2), sigwait(3): no code runs in a signal handler.
class SignalWatch {
 public:
  static constexpr std::chrono::milliseconds usual_grace{500};

  explicit SignalWatch(std::chrono::milliseconds grace = usual_grace);
  /// Stops the thread and restores the mask. Must run on the thread of the constructor.
  ~SignalWatch();
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;

  /// The first signal that arrived, warnings left out; 0: none. Cost: one relaxed load, so it may be called often.
  int first_signal() const noexcept { return pending_.load(std::memory_order_relaxed); }
  /// The first signal, else the first warning, else 0. Call it between two points, so that after a warning the present
  /// point is still measured.
  int pending_signal_or_warning() const noexcept {
    const int now = first_signal();
    return now != 0 ? now : warning_.load(std::memory_order_relaxed);
  }

  /// Sets a function that describes what a rank of this process is doing ("rank 2 waits for rank 3: ..."), for the last
  /// lines on standard error. `rank` is an address that identifies the rank. SignalWatch's thread calls the function.
  /// When this call returns, the rank's previous function is not running and will not be called again. An empty
  /// function removes it. Any thread may call this.
  void describe_with(const void* rank, std::function<std::string()> describe);

 private:
  enum class Wakeup { stop, deadline, signal };
  using Clock = std::chrono::steady_clock;

  void watch();
  Wakeup wait(Clock::time_point deadline) const;
  int take_signal() const;
  [[noreturn]] void end(int signal, const char* why);

  const std::chrono::milliseconds grace_;
  std::atomic<int> pending_{0}, warning_{0};
  std::mutex describe_mutex_;
  /// Functions of `describe_with` with their ranks, in the order in which they were set.
  std::vector<std::pair<const void*, std::function<std::string()>>> descriptions_;
  sigset_t watched_{}, before_{};
  Descriptor signals_, stop_;
  std::thread thread_;
};

}  // namespace gradmeter::runtime
