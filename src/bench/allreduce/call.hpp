// SPDX-License-Identifier: Apache-2.0
// One iteration of a collective on this rank. The two clock readings enclose only the iteration's calls and the stores
// of FirstElements.
#pragma once
#include <array>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "bench/allreduce/row.hpp"
#include "bench/allreduce/setup.hpp"
#include "dataparallel/fabric/ranks/engine.hpp"
#include "runtime/clock.hpp"
#include "runtime/threads/backoff.hpp"

namespace gradmeter::bench {

/// The values that the input's first element gets before each call of an iteration except the first, so that each call
/// has other data than the call before. Only the store of that element is within the measured time.
struct FirstElements {
  std::byte* at = nullptr;  ///< the input's first element
  std::size_t width = 0;    ///< length of an element [bytes]
  /// One value for each of those calls; empty: the element stays as it is.
  std::vector<std::array<std::byte, 8>> values = {};
};

/// Makes the calls of an iteration on this rank.
class CollectiveCaller {
 public:
  /// `call` may change between iterations. iteration: makes all calls of an iteration as one (a graph); null: the calls
  /// are made one after another. firsts: null where the first element keeps its value. All arguments must outlive this
  /// object.
  CollectiveCaller(runtime::Activity& activity, runtime::SpinPolicy spin_policy, allreduce::Collective& c,
                   const char* label, const allreduce::Call& call, std::size_t calls,
                   allreduce::Collective* iteration = nullptr, const FirstElements* firsts = nullptr)
      : activity_(activity),
        backoff_(spin_policy),
        collective_(c),
        iteration_(iteration),
        label_(label),
        call_(call),
        calls_(calls),
        firsts_(firsts) {}

  /// Makes all calls of an iteration.
  void run() {
    if (iteration_) return run(*iteration_);
    for (std::size_t i = 0; i < calls_; ++i) {
      if (i > 0 && firsts_ && !firsts_->values.empty()) {
        std::memcpy(firsts_->at, firsts_->values[i - 1].data(), firsts_->width);
      }
      run(collective_);
    }
  }
  /// Leaves the result of one call in `out`. Makes a single call, or a whole iteration if that is a graph. In place it
  /// always makes a single call, since there each call of a graph would work on the result of the call before.
  void run_one() { run(iteration_ && !call_.in_place() ? *iteration_ : collective_); }
  std::size_t calls() const { return calls_; }
  /// The number of calls that `run_one` makes.
  std::size_t calls_of_one() const { return iteration_ && !call_.in_place() ? calls_ : 1; }
  /// To be called once before each block of iterations: tells the watchdog that this rank may be stuck in a vendor's
  /// call.
  void announce() { activity_.waiting({.operation = label_}); }
  /// To be called once after each block of iterations.
  void announce_end() { activity_.wait_ended(); }

 private:
  void run(allreduce::Collective& c) {
    c.start(call_);
    if (!c.advance()) wait(c);
  }
  void wait(allreduce::Collective&);

  runtime::Activity& activity_;
  runtime::Backoff backoff_;
  allreduce::Collective& collective_;
  allreduce::Collective* iteration_;
  const char* label_;
  const allreduce::Call& call_;
  std::size_t calls_;
  const FirstElements* firsts_;
};

/// The call that the point makes on these buffers.
allreduce::Call call_of(const CollectivePoint&, CollectiveBuffers);

/// The rules by which the ranks of `communicator` begin each iteration (`cadence`, with their common `clock`), and by
/// which their times of one iteration become one time (`reduction`). Measurements with a Pace are collective over
/// `communicator`.
struct Pace {
  const runtime::Communicator& communicator;
  runtime::SharedClock& clock;
  runtime::Cadence cadence;
  RankReduction reduction;
};

/// The times of iterations on all ranks, each reduced to one time. Iterations that some rank began too late for their
/// time window are left out. An iteration may have several timed parts (the exchange alone, a product alone, both at
/// once). Times are stored iteration by iteration, with `parts` times each.
class TimeTable {
 public:
  TimeTable(const Pace& p, std::size_t parts) : pace_(p), parts_(parts) {}
  void clear() { begin_.clear(), end_.clear(), in_time_.clear(); }
  void reserve(std::size_t iterations);
  void add(bool in_time, double begin, double end) {
    begin_.push_back(begin);
    end_.push_back(end);
    in_time_.push_back(in_time ? 1 : 0);
  }
  /// Returns the times of the iterations that are not left out [iterations × parts], in seconds. Collective.
  std::vector<std::vector<double>> reduce() const;

 private:
  std::vector<double> reduced_times() const;

  Pace pace_;
  std::size_t parts_;  ///< number of timed parts of an iteration
  std::vector<double> begin_, end_;
  std::vector<char> in_time_;
};

// The work that one point does in its turns: the call alone, or the call during a matrix product.

/// Work between timed calls, outside their times; empty: there is none.
struct BetweenCalls {
  /// Runs before each timed part of an iteration, while the ranks have not yet met to begin that part (at a barrier or
  /// a time window).
  std::function<void()> before;
  /// Runs after a block's last call, before this rank communicates in any other way, so that the result is what the
  /// call itself has left.
  std::function<void()> after_last;
};

/// Times [s] of the exchange alone and of the matrix product alone, one for each iteration.
struct PartTimes {
  std::vector<double> exchange_s = {}, compute_s = {};
};

class CollectiveTask {
 public:
  virtual ~CollectiveTask() = default;
  void set_between(BetweenCalls b) { between_ = std::move(b); }
  /// Runs iterations and returns for each the time of one call [s], the same on all ranks. Iterations that a rank began
  /// too late for their time window are left out, so there may be fewer times. keep: true if the times are samples,
  /// false for warm-up and discarded iterations. window_s: the length of the time window of an iteration. Collective.
  virtual std::vector<double> run(std::size_t iterations, bool keep, double window_s) = 0;
  /// This rank's own times for one call [s], including waits for other ranks, since `take_own_times` was last called:
  /// of the kept iterations of which this rank began every timed part in time.
  std::vector<double> take_own_times() { return std::exchange(own_times_, {}); }
  /// Makes one call in the same way as the timed ones. Collective.
  virtual void call_once() = 0;
  /// For an overlapped exchange, the times of the exchange alone and of the matrix product alone, of the iterations
  /// kept since this was last called; empty for other tasks.
  virtual PartTimes take_part_times() { return {}; }
  virtual std::string implementation() const { return {}; }

 protected:
  void before() const {
    if (between_.before) between_.before();
  }
  void after_last() const {
    if (between_.after_last) between_.after_last();
  }

  std::vector<double> own_times_;

 private:
  BetweenCalls between_;
};

/// Makes the function that runs blocks of iterations for `Rounds`. calls: the calls of an iteration. An iteration's
/// time window is 1.5 times as long as the median iteration of the block before.
RunBlock blocks_of(CollectiveTask&, std::size_t calls);

std::unique_ptr<CollectiveTask> make_call_task(const Pace&, const CollectiveCaller&);

/// The arguments from which an overlapped exchange is made. `call` may change between iterations. `threads`: threads of
/// the matrix product.
struct OverlapSetup {
  Session& session;
  allreduce::Collective& collective;
  const char* label;
  const allreduce::Call& call;
  int threads;
};
/// Makes the task of an overlapped exchange. Each iteration has three parts, in turn: the exchange alone, a matrix
/// product alone, both at once. The product takes about as long as the exchange. Collective.
std::unique_ptr<CollectiveTask> make_overlap_task(const Pace&, const OverlapSetup&);

}  // namespace gradmeter::bench
