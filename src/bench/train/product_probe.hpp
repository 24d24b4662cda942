// The best times of a step's matrix products, at their own shapes: measured repeatedly in turn with the steps.
#pragma once
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "core/units.hpp"
#include "kernels/aligned.hpp"
#include "model/model.hpp"

namespace gradmeter::bench {

/// The times of all products of a step, each so many times [s].
struct ProductTimes {
  double library = 0;   ///< the fastest run of each
  double roofline = 0;  ///< its FLOP at the peak, or a load of each operand, whichever is longer
};

/// For the calling rank, with `threads` threads. Times are the fastest of all rounds, with operands in the caches as
/// far as they fit: training's are colder, but a bound may not be above any step. Products of one shape share one
/// entry.
class ProductProbe {
 public:
  explicit ProductProbe(int threads) : threads_(threads) {}
  /// Runs the least often measured of these products first, until `budget` is over; new ones run however long they
  /// take. Errors: BackendError of the library.
  void round(std::span<const model::RepeatedProduct>, core::Seconds budget);
  /// They must have been in a round.
  ProductTimes times(std::span<const model::RepeatedProduct>) const;
  /// The best rate of bare multiply-adds, or of a product that was faster.
  core::FlopsPerSecond peak() const { return peak_; }

 private:
  struct Entry {
    kernels::GemmShape problem;
    std::unique_ptr<kernels::Gemm> gemm;
    std::uint64_t rounds = 0;
    double run_s = 0, read_s = 0;  ///< the shortest
  };
  Entry& entry(const kernels::GemmShape&);
  void run(Entry&);

  int threads_;
  std::deque<Entry> entries_;
  kernels::AlignedVector<float> inputs_, outputs_;
  core::FlopsPerSecond peak_{0};
};

}  // namespace gradmeter::bench
