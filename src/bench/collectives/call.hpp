// One iteration of a collective on this rank, with as little overhead as possible: nothing but the call is between the
// two clock readings.
#pragma once
#include <array>
#include <cstring>
#include <functional>
#include <vector>

#include "bench/collectives/stage.hpp"
#include "runtime/time/backoff.hpp"
#include "runtime/time/cadence.hpp"

namespace gradmeter::bench {

/// What the input's first element becomes before each call of an iteration but the first, so that no call finds the
/// data of the last one. A store of this size is all that is timed of it.
struct FirstElements {
  std::byte* at = nullptr;
  std::size_t width = 0;
  std::vector<std::array<std::byte, 8>> values = {};  ///< one for each of those calls; empty: it stays
};

class CollectiveCaller {
 public:
  /// `call` may change between iterations. iteration: makes all calls of an iteration as one. Null: they are made one
  /// after another. firsts: null: none. All outlive it.
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

  /// `calls` calls.
  void run() {
    if (iteration_) return run(*iteration_);
    for (std::size_t i = 0; i < calls_; ++i) {
      if (i > 0 && firsts_ && !firsts_->values.empty()) {
        std::memcpy(firsts_->at, firsts_->values[i - 1].data(), firsts_->width);
      }
      run(collective_);
    }
  }
  /// What leaves the result of one call: all of an iteration where that is made as one and every call finds the same
  /// data.
  void run_one() { run(iteration_ && !call_.in_place() ? *iteration_ : collective_); }
  std::size_t calls() const { return calls_; }
  /// Calls that `run_one` makes.
  std::size_t calls_of_one() const { return iteration_ && !call_.in_place() ? calls_ : 1; }
  /// Tells the watchdog, once a block, that this rank may be stuck in a vendor's call.
  void announce() { activity_.waiting({.operation = label_}); }
  void retire() { activity_.wait_ended(); }

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

/// The point's call on these buffers.
allreduce::Call call_of(const CollectivePoint&, CollectiveBuffers);

/// How iterations are paced and their times become one. Collective over `c`.
struct Pace {
  const runtime::Communicator& c;
  runtime::SharedClock& clock;
  runtime::Cadence cadence;
  Reduction reduction;
};

/// Times of iterations on all ranks, reduced to one each; iterations that any rank began too late for its window are
/// left out. An iteration may have several timed parts (alone, together): `parts` of them, iteration-major.
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
  /// Collective. [iterations that count × parts]
  std::vector<std::vector<double>> reduce() const;

 private:
  std::vector<double> reduced_times() const;

  Pace pace_;
  std::size_t parts_;
  std::vector<double> begin_, end_;
  std::vector<char> in_time_;
};

}  // namespace gradmeter::bench
