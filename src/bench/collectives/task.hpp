// What one point runs in its turns: the call alone, or the call during a matrix product.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "bench/collectives/call.hpp"
#include "bench/collectives/row.hpp"
#include "dataparallel/ranks/engine.hpp"

namespace gradmeter::bench {

/// What stands between timed calls; empty: nothing. Neither part is in their times.
struct BetweenCalls {
  std::function<void()> before;  ///< each iteration, and ahead of what paces it
  /// A block's last call, before this rank communicates in any other way: the result is what the call itself has left.
  std::function<void()> after_last;
};

class CollectiveTask {
 public:
  virtual ~CollectiveTask() = default;
  void set_between(BetweenCalls b) { between_ = std::move(b); }
  /// Times of the iterations that count, equal on all ranks. Collective.
  virtual std::vector<double> run(std::size_t iterations, bool keep, double window_s) = 0;
  /// This rank's own times of the iterations kept since the last call, for one call [s], with its waits for others.
  std::vector<double> take_own_times() { return std::exchange(own_times_, {}); }
  /// One call, made as the timed ones are. Collective.
  virtual void call_once() = 0;
  virtual std::optional<OverlapTimes> overlap() const { return std::nullopt; }
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

/// Blocks of so many calls an iteration, for `Rounds`; a window is 1.5 times as long as the last block's median
/// iteration.
RunBlock blocks_of(CollectiveTask&, std::size_t calls);

std::unique_ptr<CollectiveTask> make_call_task(const Pace&, const CollectiveCaller&);

/// The parts of an overlapped exchange. `call` may change between iterations. `threads`: of the matrix product.
struct OverlapSetup {
  Session& session;
  allreduce::Collective& collective;
  const char* label;
  const allreduce::Call& call;
  int threads;
};
/// Each iteration has three parts, in turn: the exchange alone, a matrix product alone, both. The product is made about
/// as long as the exchange. Collective.
std::unique_ptr<CollectiveTask> make_overlap_task(const Pace&, const OverlapSetup&);

}  // namespace gradmeter::bench
