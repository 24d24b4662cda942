// SPDX-License-Identifier: Apache-2.0
// Lower bounds for the time of a step, from the best times of its operations (on the step's own shapes) and from the
// best rates of links, both measured in turns with the steps.
#pragma once
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "bench/engine/link_probe.hpp"
#include "core/result.hpp"
#include "core/units.hpp"
#include "kernels/host/memory.hpp"
#include "kernels/op.hpp"
#include "model/model.hpp"

namespace gradmeter::bench {

/// The time of all operations of a step, each multiplied by how often the step runs it [s].
struct OperationTimes {
  double library = 0;   ///< the fastest run of each operation
  double roofline = 0;  ///< for each operation its FLOP at the peak rate, or a load of its operands, if that is longer
};

/// Measures the times of operations on the calling rank, with `threads` threads. A time is the fastest of all rounds.
/// Operands are in the library's layouts, and in the caches as far as they fit. In training the caches hold less of
/// them, but a lower bound must not be above the time of any step. Operations on one problem share one entry; all
/// entries share the memory of their operands.
class OperationTimer {
 public:
  explicit OperationTimer(int threads) : threads_(threads) {}
  /// Runs the operations, those that were measured least often first, until `budget` is over. Operations that were
  /// never measured are run even beyond the budget.
  /// Errors: BackendError of the library.
  void round(std::span<const model::RepeatedProblem>, core::Seconds budget);
  /// The times of these operations. Each must have been in a round before.
  OperationTimes times(std::span<const model::RepeatedProblem>) const;
  /// The best rate of bare multiply-adds, or that of an operation that was faster, but at most
  /// kernels::product_rate_bound times the rate of bare multiply-adds.
  core::FlopsPerSecond peak() const { return peak_; }

 private:
  struct Entry {
    kernels::Problem problem;
    std::unique_ptr<kernels::Op> op;
    std::uint64_t rounds = 0;
    double run_s = 0, read_s = 0;  ///< the shortest time of a run; of a load of the operands
  };
  /// Memory that holds random numbers of one format; without a format, zeros.
  struct Memory {
    const kernels::NumberFormat* format;
    kernels::AlignedVector<std::byte> bytes;
  };
  Entry& entry(const kernels::Problem&);
  Memory& memory_of(const kernels::NumberFormat*);
  /// Enlarges the memory so that it has room for all operands of the operation, each on cache lines of its own.
  void reserve_operands(const kernels::Op&);
  void run(Entry&);

  int threads_;
  std::deque<Entry> entries_;
  std::deque<Memory> inputs_;
  kernels::AlignedVector<std::byte> outputs_;
  core::FlopsPerSecond fma_{0}, peak_{0};
};

// The physical limits that steps are compared with. They are measured between rounds of steps, by the ranks that make
// the steps, all at the same time.

/// A lower bound for the step of any implementation: the time of its operations or the time of its exchange, whichever
/// is longer, since with perfect overlap the shorter one is hidden.
struct StepBound {
  bool is_known = true;      ///< false: there is no bound to compare a time with
  core::Seconds compute{};   ///< time of the step's operations at the library's best
  core::Seconds roofline{};  ///< time at the hardware's best (OperationTimes::roofline)
  core::Seconds exchange{};
  /// The best rates measured: flops_per_s is that of the slowest rank; links and ports are known where anything is
  /// exchanged.
  core::Machine machine{};

  core::Seconds seconds() const { return std::max(compute, exchange); }
  std::string_view name() const { return compute >= exchange ? "compute" : "link"; }
};
/// Fills in limits, roofline and rates, where they are known. Sets the status `ok` to `mistrusted` where the row's time
/// and its whole 95 % interval are below its limit.
void fill_bound(const StepBound&, core::Point&);

/// The least work that a point's step demands of the machine, as seen by this rank.
struct StepDemand {
  std::vector<model::RepeatedProblem> operations = {};  ///< empty on ranks that only serve
  MinimumSent least_sent = {};  ///< least bytes to send, the same on all ranks; 0: nothing is exchanged
  /// True: the time of a step is that of the slowest rank. False: it is the harmonic mean of the ranks' times.
  bool lock_step = true;
  bool exchanges() const { return least_sent.by_busiest_rank > 0 || least_sent.by_busiest_node > 0; }
};

/// All limits of steps on one group of ranks with `threads` threads each. Only steps on hosts have limits; on a device
/// no bound is known.
class StepLimits {
 public:
  /// Collective over `c`, as are all calls; `c` must outlive it.
  StepLimits(Session& s, const runtime::Communicator& c, int threads)
      : session_(s), communicator_(c), threads_(threads), is_host_(s.on_host()), operations_(threads) {}
  /// Measures one round: all ranks compute, then all use the link. It takes a few milliseconds, more for new or long
  /// operations. No other messages may be under way meanwhile.
  void round(const StepDemand&);
  /// The bound from all rounds so far. At least one round must have measured this demand.
  StepBound bound(const StepDemand&) const;

 private:
  Session& session_;
  const runtime::Communicator& communicator_;
  int threads_;
  bool is_host_;
  OperationTimer operations_;
  std::optional<LinkProbe> link_;  ///< made when a demand exchanges something for the first time
};

}  // namespace gradmeter::bench
