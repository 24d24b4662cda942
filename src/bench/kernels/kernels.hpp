// The kernel sweep: each problem checked, timed on all ranks at once, and compared with the roofline of the same run.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bench/engine/sweep.hpp"
#include "bench/kernels/limits.hpp"
#include "bench/kernels/plan.hpp"
#include "core/statistics.hpp"
#include "kernels/problems/published.hpp"

namespace gradmeter::bench {

struct KernelOptions {
  KernelFactors factors;
  int threads = 1;
  core::StoppingRule rule;
  std::optional<core::Seconds> time_budget;  ///< for all points together
  bool check = true;
  int error_rank = -1;  ///< test hook
  std::uint64_t seed = 1;
  std::shared_ptr<const kernels::PublishedTimes> against;  ///< null: nothing
};

/// Receives the sweep's points. Called on rank 0 of the ranks that measure.
struct KernelListener {
  std::function<void(KernelLimits&, const std::vector<kernels::Precision>&)> limits;  ///< before any point
  RowListener rows;
};

/// Ranks, nodes and threads of the ranks of `c`, which are the first of the world.
KernelPlacement placement_of(const Session&, const runtime::Communicator& c, int threads);

/// Collective over `c`. `finished`: points of earlier runs by Factors::key(); the same on every rank.
/// Gives the number of wrong points. Cost: some seconds for the roofline; then 1 s a point and at least 6 calls, or
/// the time budget, which it keeps to within one point. Errors: Interrupted.
std::size_t run_kernels(Session&, const runtime::Communicator& c, const KernelOptions&, const FinishedRows& finished,
                        const KernelListener&);

}  // namespace gradmeter::bench
