// SPDX-License-Identifier: Apache-2.0
// Turns the measurement of a kernel on all ranks into a row.
#pragma once
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bench/engine/machine_state.hpp"
#include "bench/engine/rounds.hpp"
#include "bench/kernels/limits.hpp"
#include "bench/kernels/plan.hpp"
#include "core/result.hpp"

namespace gradmeter::bench {

/// The findings of the checks of all ranks together.
struct KernelChecks {
  double error = 0, zero_share = 0;  ///< the largest values of all ranks; a NaN is kept
  int wrong_rank = -1;               ///< the first rank whose result is wrong; -1: none is
  double worst = 0;  ///< the largest error of an element on `wrong_rank`, in units of the possible rounding error
};

/// The findings for one point.
struct KernelResults {
  const KernelPoint& point;
  int ranks = 1;
  std::function<std::string(int rank)> host_of = {};
  std::optional<KernelChecks> checks = {};        ///< empty: the point was not checked
  std::optional<KernelChecks> timed_checks = {};  ///< checks of timed calls
  /// By rank: the median time of its calls [s]; filled only on rank 0, empty on the others.
  std::vector<double> medians = {};
  core::Blocks times = {};  ///< times of the rank with the longest median [s a call]
  core::Stop stop = core::Stop::none;
  std::size_t calls = 1, sets = 1;  ///< number of calls of one sample, number of operand sets
  double warmup_s = 0;
  std::size_t warmup_samples = 0;
  MachineNoise noise = {};
  bool oversubscribed = false;
  bool on_host = true;
  std::string implementation = {};
  KernelBound bound = {};
  /// If the caches hold all sets of cold operands: the bytes that calls touch before they come back to the same set. 0:
  /// the caches do not.
  std::size_t cached_bytes = 0;
};

/// A result with a larger share of zeros is mistrusted. The data are random, so products and sums of floats have no
/// zeros. In a rectified result half of the numbers are zero, and among whole numbers of eight bits a few are.
inline constexpr double most_zeros = 0.6;

/// Fills in the error and the check's status. A kernel whose status becomes wrong or mistrusted is not timed.
void fill_kernel_check(const KernelResults&, core::Point& row);
/// True if the 95 % interval of the time lies wholly below the bound, and the bound is certain. Without an interval,
/// all samples must be below it.
bool beats_bound(const KernelResults&);
/// Sets the status to wrong if the result of a timed call is wrong. Returns true if none is.
bool fill_timed_checks(const KernelResults&, core::Point& row);
/// Fills in times of the slowest rank, rates, the roofline, the spread over the ranks. The status is mistrusted where
/// the time beats its bound.
void fill_kernel_times(const KernelResults&, core::Point& row);
/// Fills in the published time and the name of its set; nothing if the time is 0, that is, none was published.
void fill_published(const std::string& set, core::Seconds time, core::Point& row);

}  // namespace gradmeter::bench
