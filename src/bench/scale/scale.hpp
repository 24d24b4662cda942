// The main experiment: scaling curves of real training steps, with their controls and the causes of lost time.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "bench/engine/sweep.hpp"
#include "bench/scale/bucket_times.hpp"
#include "bench/scale/learning.hpp"
#include "bench/scale/measure.hpp"
#include "bench/scale/plan.hpp"
#include "core/injection.hpp"
#include "core/result_file.hpp"

namespace gradmeter::bench {

struct ScaleOptions {
  ScaleFactors factors;
  core::StoppingRule rule;
  std::optional<core::Seconds> time_budget;  ///< for all points together, shared out evenly
  std::string data_directory;                ///< empty: the built-in digits
  std::size_t learn_samples = 0;             ///< accuracy is taken after so many, and after the control's time for them
  LearningRule learning_rule = {};           ///< of the steps' sizes meanwhile
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
struct PointEstimate {
  ScalePoint point;
  std::size_t bytes_per_rank = 0;
  double seconds_at_most = 0;
};
std::vector<PointEstimate> estimate_scale(const ScaleOptions&);

}  // namespace gradmeter::bench
