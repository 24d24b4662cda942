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
  std::size_t learn_samples = 0;          ///< accuracy is taken after so many, and after the control's time for them
  LearningRule learning_rule = {};        ///< of the steps' sizes meanwhile
};

/// One rank of a point: medians over the blocks [s].
struct RankTimes {
  int rank = 0;
  std::string host = {};
  double compute = 0, control_compute = 0;
  double wait = 0;  ///< for ranks that had not begun a call: the straggle of another rank
};

struct ScaleListener {
  RowListener rows;
  /// Of a new row with more than one rank.
  std::function<void(const core::Point&, std::span<const RankTimes>)> ranks = {};
  /// Of a new row whose gradients are exchanged by all-reduces; null: nobody asks.
  std::function<void(const core::Point&, std::span<const BucketTimes>)> buckets = {};
};

/// Collective over the session's world. `finished`: points of earlier runs by Factors::key(), which are not measured
/// again and serve as baselines; the same on every rank.
/// Errors: Interrupted; WrongResult is not thrown: such points have status wrong, and the number of them is returned.
std::size_t run_scale(Session&, const ScaleOptions&, const FinishedRows& finished, const ScaleListener&);

/// For --dry-run: what each point needs. Needs no ranks.
std::vector<Estimated<ScalePoint>> estimate_scale(const ScaleOptions&);

/// Points of one sweep; curves in the order of their first point. A curve is the points of one model and one batch;
/// each gets a heading that names its baseline, and columns that line up and carry units. Rows that were not measured
/// show why.
std::string scale_tables(std::span<const core::Point>, std::size_t width = core::any_width);

/// What the columns mean, for below the last table.
std::string scale_legend(std::span<const core::Point>, report::Legend);
const report::CsvColumns& scale_csv();

}  // namespace gradmeter::bench
