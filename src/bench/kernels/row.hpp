// Turns what was measured of a kernel on all ranks into a row.
#pragma once
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bench/engine/noise_sampler.hpp"
#include "bench/engine/own_times.hpp"
#include "bench/kernels/limits.hpp"
#include "bench/kernels/plan.hpp"
#include "core/result.hpp"

namespace gradmeter::bench {

/// What the checks of all ranks found together.
struct KernelChecks {
  double error = 0, zero_share = 0;  ///< the largest of all ranks'; a NaN stays
  int wrong_rank = -1;               ///< the first whose result is wrong; -1: none
  double worst = 0;                  ///< its farthest element, in units of what rounding may do
};

/// Of one point.
struct KernelFindings {
  const KernelPoint& point;
  int ranks = 1;
  std::function<std::string(int rank)> host_of = {};
  std::optional<KernelChecks> checks = {};        ///< empty: not checked
  std::optional<KernelChecks> timed_checks = {};  ///< of timed calls
  std::vector<double> medians = {};               ///< of each rank's own calls [s], on rank 0
  core::Blocks times = {};                        ///< of the rank with the longest median [s a call]
  core::Stop stop = core::Stop::none;
  std::size_t calls = 1, sets = 1;  ///< calls of one sample, operand sets
  double warmup_s = 0;
  std::size_t warmup_samples = 0;
  Noise noise = {};
  bool oversubscribed = false;
  bool on_host = true;
  std::string implementation = {};
  KernelBound bound = {};
};

/// A larger share of zeros does not fit the data: products and sums of random numbers have none, a rectified result
/// half of them, and integers of eight bits a few.
inline constexpr double most_zeros = 0.6;

/// Error, and status wrong or mistrusted, in which case it is not timed.
void fill_kernel_check(const KernelFindings&, core::Point& row);
/// Is its interval wholly below a bound that is certain?
bool beats_bound(const KernelFindings&);
/// Status wrong where a timed call's result is; true: it is not.
bool fill_timed_checks(const KernelFindings&, core::Point& row);
/// Times of the slowest rank, rates, the roofline, the spread over the ranks. Status mistrusted where it beats its
/// bound.
void fill_kernel_times(const KernelFindings&, core::Point& row);
/// 0 s: nothing was published.
void fill_published(const std::string& set, core::Seconds time, core::Point& row);

}  // namespace gradmeter::bench
