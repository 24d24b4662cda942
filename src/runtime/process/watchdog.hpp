// SPDX-License-Identifier: Apache-2.0
// The activity of a rank, written by the thread that works and read by others; and the watchdog, which ends a rank
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

/// The activity of a rank at one moment. If the activity changes while the snapshot is taken, its fields may be from
/// two moments; in a hang nothing changes. Names must live as long as the program: they are literals, or names in a
/// registry.
struct ActivitySnapshot {
  const char* operation = nullptr;  ///< operation in which the rank waits: "all-reduce ring"; null: it does not wait
  /// The awaited peer's rank in the world; -1: no particular peer (a barrier, a vendor's collective).
  int peer = -1;
  int round = -1, rounds = -1;      ///< current round (counted from 0, printed from 1), number of rounds; -1: none
  const char* computing = nullptr;  ///< label of the computation; null: the rank does not compute
};

/// "rank 2 waits for rank 3: all-reduce ring, round 5 of 14", "rank 1 computes gemm", ...
std::string describe(int rank, const ActivitySnapshot& doing);
/// The watchdog's line: the text of `describe`, the duration, and advice.
std::string describe_hang(int rank, const ActivitySnapshot& doing, core::Seconds silent);

/// The record of one rank's activity. Every call is a few relaxed loads and stores (about 1 ns), cheap enough for an
/// idle loop. Only `beat` counts as progress. `waiting` does not, since an idle loop over several slices calls it all
/// the time.
class Activity {
 public:
  /// Notes progress. If two threads call it at once, one beat may be lost, which does not matter: the other beat shows
  /// that the rank moves.
  void beat() noexcept { beats_.store(beats_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed); }
  /// Notes what the rank waits for from now on. (`Computing` notes computations.)
  void waiting(const ActivitySnapshot& note) noexcept {
    peer_.store(note.peer, std::memory_order_relaxed);
    round_.store(note.round, std::memory_order_relaxed);
    rounds_.store(note.rounds, std::memory_order_relaxed);
    operation_.store(note.operation, std::memory_order_relaxed);
  }
  /// Ends the wait, so that a later hang is not reported as this wait.
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
  // The fields share no cache line with other data, since the watchdog's looks would slow accesses to such data.
  alignas(64) std::atomic<std::uint64_t> beats_{0};
  std::atomic<const char*> operation_{nullptr};
  std::atomic<const char*> computing_{nullptr};
  std::atomic<int> peer_{-1}, round_{-1}, rounds_{-1};
  std::atomic<int> pauses_{0};
};

/// While a `Computing` lives, its rank computes `label` (a literal). A computation counts as silence: if it is longer
/// than the time-out, it ends the run, and the report names this label. The beginning and the end of a computation are
/// beats. Objects may nest, on one thread of a rank.
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

/// While a `Pause` lives, silence of its rank is no hang: for example, fewer ranks measure and this one waits, or rank
/// 0 writes a report.
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

/// Measures for how long a counter has not changed, from repeated looks at the counter. The caller says how much time
/// has passed between looks.
class StallDetector {
 public:
  /// `period`: the usual time between looks. A look that comes much later means that this process itself was stopped (a
  /// suspended job, a debugger). Nothing could move then, so the time since the last look counts as at most two
  /// periods.
  StallDetector(core::Seconds timeout, core::Seconds period) : timeout_(timeout), period_(period) {}
  /// True once the counter has not moved for the time-out. `paused` restarts the measurement.
  bool check(std::uint64_t counter, bool paused, core::Seconds since_last_look);
  core::Seconds silent() const { return silent_; }

 private:
  core::Seconds timeout_, period_, silent_;
  std::uint64_t counter_ = 0;
};

/// The watchdog's time between looks: a tenth of the time-out, but at most a second, so that the watchdogs of all
/// waiting ranks act within the same second.
core::Seconds poll_period(core::Seconds timeout);

/// A thread that looks at the activity of every rank of this process. When a rank has not moved for its time-out, the
/// watchdog prints a line for each rank that stands still, leaves ranks of other processes time to print theirs, and
/// ends the process with exit code 3. mpirun then ends the job, and `SignalWatch` on the other ranks says what they
/// waited for. (mpirun's own time-out knows neither rank nor operation.) The watchdog calls no MPI. Make it after
/// `SignalWatch`, so that its thread receives no signal. Cost: one wake-up for each `poll_period`.
class Watchdog {
 public:
  struct Ending {
    std::function<void(std::string_view line)> print;  ///< prints a line and its line end
    std::function<void(int code)> exit;                ///< returns only in tests
    core::Seconds grace{1.0};  ///< time from the first line to the exit; one period between looks is added
  };
  /// Prints on standard error, then ends at once (signals.hpp).
  static Ending usual_ending();

  explicit Watchdog(Ending ending = usual_ending()) : ending_(std::move(ending)) {}
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  /// Watches this rank until `forget`, after which `activity` is not used any more. A rank with a time-out of 0 or less
  /// is not watched. Any thread may call this.
  void watch(const Activity& activity, int rank, core::Seconds timeout);
  /// Stops watching. If the watchdog has already printed this rank's line, it does not end the process because of this
  /// rank any more.
  void forget(const Activity& activity);

 private:
  struct WatchedRank {
    const Activity* activity;
    int rank;
    StallDetector stall_detector;
    core::Seconds period;
    bool has_printed = false;
  };
  void run();
  void look(core::Seconds passed);

  const Ending ending_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<WatchedRank> watched_ranks_;
  core::Seconds since_printed_;  ///< time since the first line was printed
  bool stop_ = false;
  std::thread thread_;  ///< runs from the first `watch` on
};

}  // namespace gradmeter::runtime
