// SPDX-License-Identifier: Apache-2.0
// Steps of our own `scale` files on ranks that are not there: each strategy runs in virtual time on the links that the
// files' exchanges are fitted to, and what that misses on the measured ranks is taken off.
#pragma once
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/result_file.hpp"
#include "predict/collective_fit.hpp"
#include "predict/score.hpp"

namespace gradmeter::predict {

/// A measured point of `scale`, or one that is asked for. Times are 0 where they were not measured; noise is half the
/// 95 % interval of the step, as a share of it.
struct OwnStep {
  std::string id;
  core::Factors factors;
  std::int64_t ranks = 1, ranks_per_node = 1, batch_per_rank = 1;
  std::string model, strategy, algorithm, codec;
  double step_s = 0, compute_s = 0, comm_s = 0, encode_s = 0, decode_s = 0;
  std::optional<double> noise = {};
  /// All factors but those that follow from the ranks: points of one curve have it in common.
  std::string curve() const;
  /// What points have in common that compute the same and are on like machines.
  std::string computation() const;
};
/// The points of `scale` that were measured, without those whose status is not ok.
std::vector<OwnStep> steps_of(std::span<const core::Run>, const std::string& file);
/// The same point on other ranks: on whole nodes, and in strong scaling with the same batch of all ranks.
OwnStep on_ranks(const OwnStep&, std::int64_t ranks);

/// A step with the parts that `scale` reports of it.
struct OwnPrediction {
  Prediction step;
  double compute_s = 0;     ///< on one rank
  double contention_s = 0;  ///< what ranks cost each other without any exchange
  double wire_s = 0;        ///< exchange that computation does not hide
};
struct OwnPredictionOrReason {
  std::optional<OwnPrediction> prediction = {};
  std::string reason = {};
};

struct OwnStepOptions {
  /// Cores that all hosts share, as those of a virtual cluster do; 0: each rank keeps the cores that it has.
  std::int64_t shared_cores = 0;
};

class OwnStepCalibration {
 public:
  OwnStepCalibration(std::vector<OwnStep> rows, std::vector<MeasuredCollective> collectives, OwnStepOptions = {});
  OwnPredictionOrReason predict(const OwnStep&) const;
  /// Naive: the step of the same point on the fewest ranks, which is linear scaling.
  std::optional<double> linear(const OwnStep&) const;
  std::span<const OwnStep> rows() const { return rows_; }
  /// The most ranks of a measured point.
  std::int64_t most_ranks() const { return most_ranks_; }

 private:
  OwnStepCalibration(std::vector<OwnStep> rows, std::vector<MeasuredCollective> collectives, OwnStepOptions,
                     bool with_spread);
  struct Modelled {
    double step = 0, alone = 0, computing = 0;  ///< alone: of one rank; computing: of these ranks without exchange [s]
    double noise = 0;                           ///< of the measured step of one rank, where it is the prediction
  };
  std::optional<Modelled> modelled(const OwnStep&, std::string& reason) const;
  std::optional<Modelled> simulated(const OwnStep&, double core_s, std::string& reason) const;
  double crowd(std::int64_t ranks) const;
  double slowdown(const OwnStep&, double alone) const;
  Missed missed(const OwnStep&) const;
  core::Machine machine_for(const OwnStep&) const;

  std::vector<OwnStep> rows_;
  std::vector<MeasuredCollective> measured_collectives_;
  CollectiveCalibration collectives_;
  OwnStepOptions options_;
  std::int64_t most_ranks_ = 1;
  double spread_ = 0;
  mutable std::map<std::string, std::optional<Modelled>> known_;  ///< simulations are made once
};

Score score(const OwnStepCalibration&, std::span<const OwnStep> rows, const std::string& file);

}  // namespace gradmeter::predict
