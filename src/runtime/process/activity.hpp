// What a rank is doing right now, for whoever must explain a hang. Written by the thread that works, read by others.
#pragma once
#include <atomic>
#include <cstdint>
#include <string>

#include "core/units.hpp"

namespace gradmeter::runtime {

/// What a rank waits for. Names must live as long as the program: literals, or a registry's.
struct WaitInfo {
  const char* operation = nullptr;  ///< "all-reduce ring"
  int peer = -1;                ///< its rank in the world; -1: none in particular (a barrier, a vendor's collective)
  int round = -1, rounds = -1;  ///< counted from 0, printed from 1; -1: no rounds
};

/// A snapshot of `Activity`. While something moves its fields may belong to two moments; in a hang nothing moves.
struct ActivitySnapshot {
  WaitInfo wait;                    ///< operation is null when the rank does not wait
  const char* computing = nullptr;  ///< null when it does not compute
};

/// "rank 2 waits for rank 3: all-reduce ring, round 5 of 14", "rank 1 computes gemm", ...
std::string describe(int rank, const ActivitySnapshot& doing);
/// The watchdog's line: the same with how long, and what to make of it.
std::string describe_hang(int rank, const ActivitySnapshot& doing, core::Seconds silent);

/// One rank's board. Every call is a few relaxed loads and stores (about 1 ns): fit for an idle loop.
/// `beat` alone means progress. A note does not: an idle loop over several slices changes its note for ever.
class Activity {
 public:
  /// Something moved. Threads may beat at once: one of two beats may be lost, which does not matter, as both moved.
  void beat() noexcept { beats_.store(beats_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed); }
  void waiting(const WaitInfo& note) noexcept {
    peer_.store(note.peer, std::memory_order_relaxed);
    round_.store(note.round, std::memory_order_relaxed);
    rounds_.store(note.rounds, std::memory_order_relaxed);
    operation_.store(note.operation, std::memory_order_relaxed);
  }
  /// The wait is over: a later hang is not its doing.
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
  // A cache line of its own: the reader looks once a second, the neighbours on the line would pay for it.
  alignas(64) std::atomic<std::uint64_t> beats_{0};
  std::atomic<const char*> operation_{nullptr};
  std::atomic<const char*> computing_{nullptr};
  std::atomic<int> peer_{-1}, round_{-1}, rounds_{-1};
  std::atomic<int> pauses_{0};
};

/// While it lives the rank computes `label` (a literal). It counts as silence: a computation longer than the time-out
/// ends the run, and says so. Start and end are beats. May nest; one thread of a rank at a time.
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

/// While it lives silence is right: a rank that sits out while fewer ranks measure, rank 0 that writes a report.
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

}  // namespace gradmeter::runtime
