// The best times of a step's operations, at their own shapes: measured repeatedly in turn with the steps.
#pragma once
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "core/units.hpp"
#include "kernels/aligned.hpp"
#include "kernels/op.hpp"
#include "model/model.hpp"

namespace gradmeter::bench {

/// The times of all operations of a step, each so many times [s].
struct OperationTimes {
  double library = 0;   ///< the fastest run of each
  double roofline = 0;  ///< its FLOP at the peak, or a load of each operand, whichever is longer
};

/// For the calling rank, with `threads` threads. Times are the fastest of all rounds, with operands in the library's
/// layouts, and in the caches as far as they fit: training's are colder, but a bound may not be above any step.
/// Operations on one problem share one entry; all share the memory of their operands.
class OperationProbe {
 public:
  explicit OperationProbe(int threads) : threads_(threads) {}
  /// Runs the least often measured of these first, until `budget` is over; new ones run however long they take.
  /// Errors: BackendError of the library.
  void round(std::span<const model::RepeatedProblem>, core::Seconds budget);
  /// They must have been in a round.
  OperationTimes times(std::span<const model::RepeatedProblem>) const;
  /// The best rate of bare multiply-adds, or of an operation that was faster: at most kernels::most_of_fma times that.
  core::FlopsPerSecond peak() const { return peak_; }

 private:
  struct Entry {
    kernels::Problem problem;
    std::unique_ptr<kernels::Op> op;
    std::uint64_t rounds = 0;
    double run_s = 0, read_s = 0;  ///< the shortest
  };
  /// Random numbers of one format; without a format zeros.
  struct Memory {
    const kernels::NumberFormat* format;
    kernels::AlignedVector<std::byte> bytes;
  };
  Entry& entry(const kernels::Problem&);
  Memory& memory_of(const kernels::NumberFormat*);
  void provide(const kernels::Op&);
  void run(Entry&);

  int threads_;
  std::deque<Entry> entries_;
  std::deque<Memory> inputs_;
  kernels::AlignedVector<std::byte> outputs_;
  core::FlopsPerSecond fma_{0}, peak_{0};
};

}  // namespace gradmeter::bench
