// SPDX-License-Identifier: Apache-2.0
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
#include "core/stopping_rule.hpp"
#include "core/table.hpp"
#include "kernels/problems/problem_file.hpp"
#include "report/cells.hpp"

namespace gradmeter::bench {

struct KernelOptions {
  KernelFactors factors;
  int threads = 1;
  core::StoppingRule rule;
  std::optional<TimeBudget> time_budget;  ///< for all points together
  bool check = true;
  int error_rank = -1;  ///< rank on which one wrong element is injected, for tests; -1: none
  std::uint64_t seed = 1;
  std::shared_ptr<const kernels::PublishedTimes> against;  ///< published times to compare with; null: none
};

/// Receives the sweep's points. Called on rank 0 of the ranks that measure.
struct KernelListener {
  /// Called once before any point, with the limits of the machine and the precisions of all points to be measured.
  /// Their peaks are known; other peaks must not be asked for here, since `peak` is collective.
  std::function<void(KernelLimits&, const std::vector<kernels::Precision>&)> limits;
  RowListener rows;
};

/// The number of ranks of `c`, their nodes and threads. `c` has the first ranks of the world.
KernelPlacement placement_of(const Session&, const runtime::Communicator& c, int threads);

/// Runs the sweep. Collective over `c`. `finished`: points of earlier runs by Factors::key(); the same on every rank.
/// Returns the number of wrong points. Cost without a time budget: some seconds for the roofline; then for each point
/// its preparation, its check and about 1 s of calls. A point with long calls takes longer, since an interval needs 6
/// of them (3 if one takes over 5 s). With a time budget: that budget, which the last point may exceed, and also a long
/// roofline, since the points get at least half of the budget. Errors: Interrupted.
std::size_t run_kernels(Session&, const runtime::Communicator& c, const KernelOptions&, const FinishedRows& finished,
                        const KernelListener&);

/// One table for each operation, pass, precision and cache state, in order of appearance. After them, for the points
/// that have a mini-batch, one table for each shape, pass and cache state, with a line for each mini-batch: the GFLOP/s
/// and the share of the roofline in each precision.
std::string kernel_tables(std::span<const core::Point>, std::size_t width = core::any_width);
/// The meaning of the columns and marks.
std::string kernel_legend(report::Legend);
const report::CsvColumns& kernel_csv();

}  // namespace gradmeter::bench
