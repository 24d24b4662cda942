// SPDX-License-Identifier: Apache-2.0
// The main experiment: scaling curves of real training steps, with their controls and the causes of lost time.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "bench/engine/sweep.hpp"
#include "bench/scale/learning.hpp"
#include "bench/scale/measure.hpp"
#include "bench/scale/plan.hpp"
#include "bench/scale/step_timeline.hpp"
#include "core/injection.hpp"
#include "core/result_file.hpp"
#include "core/table.hpp"
#include "report/cells.hpp"

namespace gradmeter::bench {

struct ScaleOptions {
  ScaleFactors factors;
  core::StoppingRule rule;
  std::optional<TimeBudget> time_budget;  ///< for all points together, shared out evenly
  std::string data_directory;             ///< empty: the built-in digits
  /// A training's accuracy is measured twice: after this number of samples, and after the time that the control takes
  /// to train on as many samples; 0: accuracy is not measured.
  std::size_t learn_samples = 0;
  LearningRule learning_rule = {};  ///< step sizes of that training
};

/// Times of one rank of a point: medians over the blocks [s].
struct RankTimes {
  int rank = 0;
  std::string host = {};
  double compute = 0;
  std::optional<double> control_compute = {};  ///< empty: the control was not measured
  double wait = 0;  ///< time in which this rank waits for ranks that have not yet begun a call
};

struct ScaleListener {
  RowListener rows;
  /// Called for each new row with more than one rank.
  std::function<void(const core::Point&, std::span<const RankTimes>)> ranks = {};
  /// Called for each new row whose ranks communicate; null: the times of buckets are not measured.
  std::function<void(const core::Point&, std::span<const BucketTimes>)> buckets = {};
};

/// Measures the points that are not in `finished`: the points of earlier runs by Factors::key(), the same on every
/// rank. Finished points are measured again only where new points are compared with them. Collective over the session's
/// world. Returns the number of points with a wrong result, whose status is `wrong`. Errors: Interrupted.
std::size_t run_scale(Session&, const ScaleOptions&, const FinishedRows& finished, const ScaleListener&);

/// Estimates the memory and the time of each point, for --dry-run, without any ranks.
std::vector<Estimated<ScalePoint>> estimate_scale(const ScaleOptions&);

/// The tables of one sweep, one for each curve, in the order of their first points. The points of a curve agree in
/// model, number formats, batch, threads and cadence (runtime::Cadence). A heading names the curve's baseline; columns
/// line up and carry units. Points that were not measured show why.
std::string scale_tables(std::span<const core::Point>, std::size_t width = core::any_width);

/// Explains the columns, below the last table.
std::string scale_legend(std::span<const core::Point>, report::Legend);
const report::CsvColumns& scale_csv();

}  // namespace gradmeter::bench
