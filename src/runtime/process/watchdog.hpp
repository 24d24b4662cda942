// SPDX-License-Identifier: Apache-2.0
// A rank's present activity, written by the thread that works and read by others; and the watchdog, which ends a rank
// that hangs and says where.
#pragma once
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "core/units.hpp"

namespace gradmeter::runtime {

/// The activity of a rank. While something moves, the fields of a snapshot may belong to two moments; in a hang nothing
/// moves. Names must live as long as the program: literals, or a registry's.
struct ActivitySnapshot {
  const char* operation = nullptr;  ///< operation that it waits in: "all-reduce ring"; null when it does not wait
  /// the peer's rank in the world; -1: none in particular (a barrier, a vendor's collective)
  int peer = -1;
  int round = -1, rounds = -1;      ///< counted from 0, printed from 1; -1: no rounds
  const char* computing = nullptr;  ///< null when it does not compute
};

/// "rank 2 waits for rank 3: all-reduce ring, round 5 of 14", "rank 1 computes gemm", ...
std::string describe(int rank, const ActivitySnapshot& doing);
/// The watchdog's line: the text of `describe`, the duration, and advice.
std::string describe_hang(int rank, const ActivitySnapshot& doing, core::Seconds silent);

/// One rank's board. Every call is a few relaxed loads and stores (about 1 ns), cheap enough for an idle loop. Only
/// `beat` means progress; a note does not, since an idle loop over several slices changes its note for ever.
class Activity {
 public:
  /// Says that something moved. Threads may beat at once: one of two beats may be lost, which does not matter, as both
  /// moved.
  void beat() noexcept { beats_.store(beats_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed); }
  /// Notes that the rank waits from now on. `Computing` notes what it computes.
  void waiting(const ActivitySnapshot& note) noexcept {
    peer_.store(note.peer, std::memory_order_relaxed);
    round_.store(note.round, std::memory_order_relaxed);
    rounds_.store(note.rounds, std::memory_order_relaxed);
    operation_.store(note.operation, std::memory_order_relaxed);
  }
  /// Ends the wait: a later hang is not reported as this wait.
  void wait_ended() noexcept {
    operation_.store(nullptr, std::memory_order_relaxed);
    beat();
  }

  std::uint64_t beats() const noexcept { return beats_.load(std::memory_order_relaxed); }
  bool paused() const noexcept { return pauses_.load(std::memory_order_relaxed) > 0; }
  ActivitySnapshot doing() const noexcept;

 private:
  friend class Computing;
  friend class Pause;
  // It has a cache line of its own: the reader looks once a second, and neighbours on the line would pay for it.
  alignas(64) std::atomic<std::uint64_t> beats_{0};
  std::atomic<const char*> operation_{nullptr};
  std::atomic<const char*> computing_{nullptr};
  std::atomic<int> peer_{-1}, round_{-1}, rounds_{-1};
  std::atomic<int> pauses_{0};
};

/// While it lives, the rank computes `label` (a literal). This counts as silence: a computation longer than the
/// time-out ends the run with this label. Its begin and end are beats. Objects may nest, on one thread of a rank.
class Computing {
 public:
  Computing(Activity& activity, const char* label) noexcept
      : activity_(activity), before_(activity.computing_.exchange(label, std::memory_order_relaxed)) {
    activity_.beat();
  }
  ~Computing() {
    activity_.computing_.store(before_, std::memory_order_relaxed);
    activity_.beat();
  }
  Computing(const Computing&) = delete;
  Computing& operator=(const Computing&) = delete;

 private:
  Activity& activity_;
  const char* before_;
};

/// While it lives, silence is no hang: fewer ranks measure and this one sits out, or rank 0 writes a report.
class Pause {
 public:
  explicit Pause(Activity& activity) noexcept : activity_(activity) {
    activity_.pauses_.fetch_add(1, std::memory_order_relaxed);
  }
  ~Pause() {
    activity_.beat();
    activity_.pauses_.fetch_sub(1, std::memory_order_relaxed);
  }
  Pause(const Pause&) = delete;
  Pause& operator=(const Pause&) = delete;

 private:
  Activity& activity_;
};

/// Measures how long a counter has stood still, from looks at it. It has no clock: the caller says how much time
/// passed.
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

/// The time between looks: a tenth of the time-out, at most a second, so that all waiters notice within the same
/// second.
core::Seconds poll_period(core::Seconds timeout);

/// A thread that looks at the activity of every rank of this process. When nothing moved on one of them for its
/// time-out it prints a line for each rank that stands still, leaves ranks of other processes time to print theirs, and
/// ends the process with exit code 3; mpirun then ends the job, and `SignalWatch` on the others says what they waited
/// for. (mpirun's own time-out knows neither rank nor operation.) Calls no MPI. Make it after `SignalWatch`, so that
/// its thread takes no signal. Cost: one wake-up a second.
class Watchdog {
 public:
  struct Ending {
    std::function<void(std::string_view line)> print;  ///< prints a line and adds its end
    std::function<void(int code)> exit;                ///< only tests return from it
    core::Seconds grace{1.0};  ///< time between the line and the exit, to which a period between looks is added
  };
  /// Prints on standard error, then ends at once (signals.hpp).
  static Ending usual_ending();

  explicit Watchdog(Ending ending = usual_ending()) : ending_(std::move(ending)) {}
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  /// Watches this rank until `forget`, after which `activity` is not touched any more. A time-out of 0 or less watches
  /// nothing. Any thread may call it.
  void watch(const Activity& activity, int rank, core::Seconds timeout);
  /// Stops watching. A rank that ends while its line is out ends its own way, if no other rank stands still.
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
  std::thread thread_;  ///< runs from the first `watch` on
};

}  // namespace gradmeter::runtime
