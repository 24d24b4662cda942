// Ends a run that hangs, and says where. mpirun's own time-out knows neither rank nor operation.
#pragma once
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "core/units.hpp"
#include "runtime/process/activity.hpp"

namespace gradmeter::runtime {

/// How long a counter has stood still, judged from looks at it. Holds no clock: the caller says how much time passed.
class StallDetector {
 public:
  /// `period`: the usual time between looks. A look that comes far later means that this process itself was stopped
  /// (a suspended job, a debugger): then nobody could move, so it counts as two periods at most.
  StallDetector(core::Seconds timeout, core::Seconds period) : timeout_(timeout), period_(period) {}
  /// True once the counter has not moved for the time-out. `paused` starts the count anew.
  bool check(std::uint64_t counter, bool paused, core::Seconds since_last_look);
  core::Seconds silent() const { return silent_; }

 private:
  core::Seconds timeout_, period_, silent_;
  std::uint64_t counter_ = 0;
};

/// How often to look: a tenth of the time-out, at most a second, so that all waiters notice within the same second.
core::Seconds poll_period(core::Seconds timeout);

/// A thread that looks at the activity of every rank of this process. When nothing moved on one of them for its
/// time-out it prints a line for each rank that stands still, leaves ranks of other processes time to print theirs, and
/// ends the process with exit code 3; mpirun then ends the job, and `SignalWatch` on the others says what they waited
/// for. Calls no MPI. Make it after `SignalWatch`, so that its thread takes no signal. Cost: one wake-up a second.
class Watchdog {
 public:
  struct Ending {
    std::function<void(std::string_view line)> print;  ///< adds the line end
    std::function<void(int code)> exit;                ///< only tests return from it
    core::Seconds grace{1.0};                          ///< between the line and the exit, beyond one look
  };
  /// Prints on standard error, then ends at once (signals.hpp).
  static Ending usual_ending();

  explicit Watchdog(Ending ending = usual_ending()) : ending_(std::move(ending)) {}
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  /// From now on looks at this rank, until `forget`, after which `activity` is not touched any more. A time-out of 0 or
  /// less watches nothing. Any thread.
  void watch(const Activity& activity, int rank, core::Seconds timeout);
  /// A rank that ends while its line is out ends its own way, if no other rank stands still.
  void forget(const Activity& activity);

 private:
  struct Board {
    const Activity* activity;
    int rank;
    StallDetector stall_detector;
    core::Seconds period;
    bool told = false;
  };
  void run();
  void look(core::Seconds passed);

  const Ending ending_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<Board> boards_;
  core::Seconds since_told_;  ///< how long the first line has been out
  bool stop_ = false;
  std::thread thread_;  ///< from the first `watch` on
};

}  // namespace gradmeter::runtime
