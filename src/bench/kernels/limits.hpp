// SPDX-License-Identifier: Apache-2.0
// The roofline of a kernel sweep: the best rates of arithmetic and memory, measured in the same run, on all ranks at
// once.
#pragma once
#include <cstddef>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "bench/engine/session.hpp"
#include "core/units.hpp"
#include "kernels/problems/problem.hpp"
#include "runtime/device.hpp"

namespace gradmeter::bench {

/// A lower bound for a call's time: its FLOP at the peak, or each operand moved once at the rate of its memory level,
/// whichever takes longer.
struct KernelBound {
  double seconds = 0;           ///< 0: no peak is known
  std::string_view name = "";   ///< "compute", "memory", "cache"
  core::FlopsPerSecond peak{};  ///< peak of one rank in the point's precision; 0: unknown
  core::BytesPerSecond rate{};  ///< rate of one rank, at the operands' memory level
  bool certain = false;         ///< true: no call can be faster (`is_certain`)
};

/// A level of memory, and the rate at which one rank reads and writes there while all ranks do the same.
struct MemoryLevel {
  std::string_view name;  ///< "L2", "L3", "memory"; for a device "L2", "memory"
  std::size_t bytes = 0;  ///< capacity for one rank
  core::BytesPerSecond rate{};
};

/// The bound of a call with this many FLOP, which moves this many bytes, on a rank with this peak and the operands in
/// this level. Leaves `certain` false.
KernelBound kernel_bound(double flops, double bytes, core::FlopsPerSecond peak, const MemoryLevel&);

/// The facts that decide whether a call may be faster than its bound.
struct BoundFacts {
  bool on_host = true;       ///< false: on a device, a call may be faster than those that the rates were measured with
  bool computes_all = true;  ///< false: its FLOP include products with padding, which need not be computed
  bool is_upper_bound = true;  ///< KernelLimits::is_upper_bound of the call's precision
  /// rotation_bytes: the bytes that calls touch before they come back to the same operands. caches: the bytes of all
  /// caches that may hold them; 0: unknown.
  std::size_t rotation_bytes = 0, caches = 0;
};
/// True if no call can be faster than the bound. A bound by memory is certain only if `rotation_bytes` is at least
/// twice `caches`: of fewer bytes, the caches keep a part from call to call. A bound by a cache is never certain.
bool is_certain(const KernelBound&, const BoundFacts&);

/// The limits of the session's device. The constructor, `peak` and `measure_again` are collective over `c`. Cost: about
/// half a second, and another half for each precision whose peak is asked for.
class KernelLimits {
 public:
  KernelLimits(Session&, const runtime::Communicator& c, int threads, int ranks_per_node);

  /// The slowest rank's best rate while all ranks compute products in this precision; 0 where there is no such product.
  /// On a host it is limited to kernels::product_rate_bound (1.25 or more) times the rate of bare fp32 multiply-adds.
  /// In fp32, and in bf16 where the host computes it in fp32, it is at least that bare rate.
  core::FlopsPerSecond peak(kernels::Precision);
  /// True if the peak in this precision is at least the rate of gradmeter's own bare multiply-adds, which no call
  /// exceeds. Otherwise the peak is only the rate of the library's best square product, and a call of another shape may
  /// be faster.
  bool is_upper_bound(kernels::Precision) const;
  /// The fault of a product that this peak was measured with, if its result was wrong on some rank; empty if all
  /// results were right, or if the peak was not asked for. With a fault the peak is 0, and the rows of this precision
  /// are wrong even if their own calls are right.
  std::string fault(kernels::Precision) const;
  /// Must be called after a call was faster than its bound. Measures the peak or the memory rate behind this bound
  /// again, in the machine's present state, and keeps the higher of the old and the new rate.
  void measure_again(const KernelBound&, kernels::Precision);
  const std::vector<MemoryLevel>& levels() const { return levels_; }
  /// The smallest level that holds `resident_bytes`; for cold operands always memory.
  const MemoryLevel& level(bool cold, std::size_t resident_bytes) const;
  /// The bytes of all caches that may hold a rank's operands; 0: unknown. On a host these are the last-level caches
  /// that serve the rank's processing units and the L2 of each thread, on the rank where they are smallest; on a device
  /// its last cache.
  std::size_t cache_bytes() const { return caches_; }

 private:
  /// The least of the ranks' values.
  double least_of_ranks(double mine) const;
  std::size_t host_pass_bytes() const;
  void measure_host();
  void measure_device();
  double measure_peak(kernels::Precision);
  double measure_memory();
  void raise_nearer_levels();

  Session& session_;
  const runtime::Communicator& communicator_;
  int threads_, ranks_per_node_;
  const bool on_host_;
  std::size_t caches_ = 0;
  std::vector<MemoryLevel> levels_;
  std::map<kernels::Precision, core::FlopsPerSecond> peaks_;
  std::map<kernels::Precision, std::string> faults_;
  core::FlopsPerSecond fma_rate_{};  ///< rate of a host's bare multiply-adds, the best so far
};

// Times calls on a device by events in its queue, so that neither the host's clock nor its waiting is in the times.

/// Times the calls of one device, which must outlive this object. Only one thread may use it.
class DeviceClock {
 public:
  explicit DeviceClock(runtime::Device&);

  /// Takes `samples` samples of `calls` calls each, and returns for each sample the time of one call [s]. `call`
  /// submits one call to the queue. The host submits samples while earlier work still keeps the device busy, so that
  /// the host's pace does not show in the times. It submits only as many at once as the device accepts without blocking
  /// the host. Without `cold`, the calls of one sample are captured as a graph, which is submitted again for every
  /// sample.
  /// If the calls cannot be captured, a call that is shorter than its submission appears to take as long as its
  /// submission. With `cold`, the device clears more memory than its caches hold before each sample, outside the
  /// measured time. `before` is called once, before the first call.
  /// On an emulated device the host's clock is used.
  std::vector<double> time(
      runtime::Queue&, std::size_t samples, std::size_t calls, bool cold, const std::function<void()>& call,
      const std::function<void()>& before = [] {});
  /// The number of calls that the device has made in `time` so far, those that were not timed included. The calls of a
  /// graph count each time that the graph is submitted.
  std::size_t calls_made() const { return calls_made_; }

 private:
  /// Clears `beyond_caches_`, which displaces the operands from the caches.
  void clear(runtime::Queue&);
  /// Takes one sample for each element of `times`; a sample makes `submissions` submissions to the queue.
  void time_some(runtime::Queue&, bool cold, std::size_t submissions, const std::function<void()>& sample,
                 std::span<double> times);

  runtime::OwnedBuffer beyond_caches_;  ///< larger than the device's caches
  bool captures_ = true;                ///< false: calls could not be captured
  std::size_t calls_made_ = 0;
};

/// The facts of the machine that decide how many bytes a rank touches when it measures the rate of memory.
struct MemoryPassFacts {
  /// Bytes of the last-level caches: of one, of all that serve the rank's processing units, of all of the machine. 0:
  /// unknown.
  std::size_t one_cache_bytes = 0, reached_cache_bytes = 0, all_cache_bytes = 0;
  std::size_t usual_pass_bytes = 0;  ///< the bytes of a pass on a machine with one rank and one such cache
  std::size_t free_memory = 0;
  int ranks_per_node = 1, threads = 1;
};
/// The bytes of memory that a pass of this rank touches: four times the bytes of the last-level caches that count for
/// the rank. These are `reached_cache_bytes`, but at most one cache for each thread, and at most the rank's share of
/// `all_cache_bytes`. The pass is shorter if otherwise the arrays of all ranks would take more than half of the free
/// memory. It is never below 16 MiB, nor below the rank's share of `usual_pass_bytes`.
std::size_t memory_pass_bytes(const MemoryPassFacts&);

/// The bytes read and written a second while a device copies `bytes` bytes from one buffer to another: the median of
/// copies that together take about `budget`. Errors: BackendError when there is not enough memory.
core::BytesPerSecond device_traffic(runtime::Device&, std::size_t bytes, core::Seconds budget);
/// The best rate among the square products that fit into the budget; 0 where the device has no product in this
/// precision. Errors: WrongResult for a product that is wrong.
core::FlopsPerSecond best_device_product(runtime::Device&, kernels::Precision, core::Seconds budget);

}  // namespace gradmeter::bench
