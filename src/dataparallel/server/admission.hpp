// Who may read at which clock, and when updates are applied. Pure logic: no messages, no time.
#pragma once
#include <cstdint>
#include <limits>
#include <vector>

namespace gradmeter::dataparallel {

/// A worker's clock is the number of its updates that the server has. A read at clock c needs, from every worker that
/// still trains, c - staleness updates. staleness 0 is bulk synchronous (BSP), `unbounded` asynchronous (ASP), all
/// between is stale synchronous parallel (SSP).
/// Cost: a query O(1), a change O(workers).
/// Source: Ho et al., "More effective distributed ML via a stale synchronous parallel parameter server", NIPS 2013.
class Admission {
 public:
  static constexpr std::uint64_t unbounded = std::numeric_limits<std::uint64_t>::max();

  Admission(int workers, std::uint64_t staleness);
  std::uint64_t staleness() const { return staleness_; }
  /// With staleness 0 the updates of one clock wait for each other and are applied as one.
  bool grouped() const { return staleness_ == 0; }

  /// The server has one more update of that worker.
  void pushed(int worker);
  /// The worker has finished or died: reads wait for it no more, since its clock is infinite.
  void gone(int worker);

  std::uint64_t clock(int worker) const { return clocks_[static_cast<std::size_t>(worker)].updates; }
  bool is_gone(int worker) const { return clocks_[static_cast<std::size_t>(worker)].gone; }
  /// Of those that still train; `unbounded` when nobody does.
  std::uint64_t slowest() const { return slowest_; }
  int training() const { return training_; }
  bool all_train() const { return training_ == static_cast<int>(clocks_.size()); }

  /// May that worker read at `clock`, with its own first `own` updates in what it reads?
  bool may_read(int worker, std::uint64_t clock, std::uint64_t own) const;
  /// How far a reader at this clock is ahead of the slowest.
  std::uint64_t gap(std::uint64_t clock) const { return clock > slowest_ ? clock - slowest_ : 0; }

 private:
  struct Clock {
    std::uint64_t updates = 0;
    bool gone = false;
  };
  void find_slowest();

  std::vector<Clock> clocks_;
  std::uint64_t staleness_, slowest_;
  int training_;
};

/// How many updates came between a worker's read and its own update, over all workers. Counts while all train.
/// When every worker reads right after its own update, the counts add up to workers - 1 for each update, whatever the
/// speeds: each update is waited through once by every other worker. So over any n updates
///   sum + outstanding() = (workers - 1)·n
/// where `outstanding` is what the updates under way have waited through so far. The mean is workers - 1 over any cycle
/// after which `outstanding` has the same value again.
class StalenessCount {
 public:
  explicit StalenessCount(int workers) : read_(static_cast<std::size_t>(workers), 0) {}
  /// The weights that the worker's next update will be computed from.
  void read(int worker, std::uint64_t version) { read_[static_cast<std::size_t>(worker)] = version; }
  /// An update computed from `base` is applied at `version`.
  void applied(std::uint64_t base, std::uint64_t version);
  std::uint64_t outstanding(std::uint64_t version) const;
  const std::vector<std::uint64_t>& histogram() const { return histogram_; }

 private:
  std::vector<std::uint64_t> read_, histogram_;
};

}  // namespace gradmeter::dataparallel
