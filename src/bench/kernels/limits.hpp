// The roofline of a kernel sweep: what arithmetic and memory do at best, measured in the same run, on all ranks at
// once.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "bench/engine/session.hpp"
#include "kernels/problems/problem.hpp"

namespace gradmeter::bench {

/// No call can take less: all arithmetic at the peak, or all operands once at the rate of where they are.
struct KernelBound {
  double seconds = 0;           ///< 0: no peak is known
  std::string_view name = "";   ///< "compute", "memory", "cache"
  core::FlopsPerSecond peak{};  ///< of one rank in the point's precision; 0: unknown
  core::BytesPerSecond rate{};  ///< of one rank, at the place where the operands are
  /// Not where caches may hold more of the operands than was supposed, or padding is part of the count.
  bool certain = false;
};

/// Where operands may be, and the bytes that one rank reads and writes there in a second while all ranks do.
struct MemoryLevel {
  std::string_view name;  ///< "L2", "L3", "memory"
  std::size_t bytes = 0;  ///< that it holds for one rank
  core::BytesPerSecond rate{};
};

/// Pure: the bound of so much work where the peak and the levels are known.
KernelBound kernel_bound(double flops, double bytes, core::FlopsPerSecond peak, const MemoryLevel&);

/// Collective over `c`, as are `peak` and `measure_again`. Costs about half a second, and half a second for each
/// precision that is asked for.
class KernelLimits {
 public:
  KernelLimits(Session&, const runtime::Communicator& c, int threads, int ranks_per_node);

  /// The slowest rank's best rate while all compute: of products in that precision, in fp32 of bare multiply-adds where
  /// these are faster; 0 where no product can be had.
  core::FlopsPerSecond peak(kernels::Precision);
  /// For a call that was faster than they allow: what set its bound, in the state that the machine is in now. The
  /// better of two measurements counts from then on.
  void measure_again(const KernelBound&, kernels::Precision);
  const std::vector<MemoryLevel>& levels() const { return levels_; }
  /// The smallest level that holds so much. Cold operands are in memory.
  const MemoryLevel& level(bool cold, std::size_t resident_bytes) const;
  std::size_t last_cache_bytes() const { return last_cache_; }

 private:
  double slowest(double mine) const;
  double measure_peak(kernels::Precision);
  double measure_memory();
  void raise_nearer_levels();

  Session& session_;
  const runtime::Communicator& c_;
  int threads_, ranks_per_node_;
  std::size_t last_cache_ = 0;
  std::vector<MemoryLevel> levels_;
  std::map<kernels::Precision, core::FlopsPerSecond> peaks_;
};

}  // namespace gradmeter::bench
