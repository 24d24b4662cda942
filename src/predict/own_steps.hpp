// SPDX-License-Identifier: Apache-2.0
// Predicts steps of our own `scale` files on more ranks than were measured. Each strategy runs in virtual time on links
// that are fitted to the files' exchanges. The simulated step is then multiplied by a factor: the ratio of measured to
// simulated steps on the numbers of ranks that were measured.
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

/// A measured point of `scale`, or a point whose prediction is asked for. Times that were not measured are 0. noise: as
/// in `MeasuredCollective`.
struct OwnStep {
  std::string id;
  core::Factors factors;
  std::int64_t ranks = 1, ranks_per_node = 1, batch_per_rank = 1;
  std::string model, strategy, algorithm, codec;
  double step_s = 0, compute_s = 0, comm_s = 0, encode_s = 0, decode_s = 0;
  std::optional<double> noise = {};
  /// The key of the point's curve. Points that differ only in ranks and their places have the same key, so it contains
  /// the batch that they share: in strong scaling that of all ranks, else that of one rank.
  std::string curve() const;
  /// The reason why the point is neither predicted nor used for calibration; empty: it is used.
  std::string refusal() const;
  /// The key of the point's computation: points with the same key do the same computation on machines of the same kind.
  std::string computation() const;
};
/// The measured points of `scale`: those with status ok.
std::vector<OwnStep> steps_of(std::span<const core::Run>, const std::string& file);
/// The same point on another number of ranks. Each node has as many ranks as before (or all, if they are fewer). In
/// strong scaling the batch of all ranks stays the same.
OwnStep on_ranks(const OwnStep&, std::int64_t ranks);

/// A step with the parts that `scale` reports of it.
struct OwnPrediction {
  Prediction step;
  double compute_s = 0;     ///< the step of one rank alone
  double contention_s = 0;  ///< time by which ranks slow each other down without any exchange
  double exposed_s = 0;     ///< exposed time of the exchange
};
struct OwnPredictionOrReason {
  std::optional<OwnPrediction> prediction = {};
  std::string reason = {};
};

struct OwnStepOptions {
  /// The number of cores that all hosts share, as the hosts of a virtual cluster do; 0: hosts share none, and each rank
  /// keeps the cores that it has.
  std::int64_t shared_cores = 0;
};

class OwnStepCalibration {
 public:
  /// Links are fitted to `collectives`; if these are empty, to the exchanges of the rows with strategy `sync`.
  OwnStepCalibration(std::vector<OwnStep> rows, std::vector<MeasuredCollective> collectives, OwnStepOptions = {});
  OwnPredictionOrReason predict(const OwnStep&) const;
  /// A naive prediction [s], which assumes linear scaling: the measured step of the same curve on the fewest ranks
  /// above 1, times the ratio of the batches per rank.
  std::optional<double> linear_scaling_seconds(const OwnStep&) const;
  /// The rows that are not refused.
  std::span<const OwnStep> rows() const { return rows_; }
  /// The largest number of ranks of a measured point.
  std::int64_t most_ranks() const { return most_ranks_; }

 private:
  OwnStepCalibration(std::vector<OwnStep> rows, std::vector<MeasuredCollective> collectives, OwnStepOptions,
                     bool with_spread);
  struct Modelled {
    /// Times [s]. step: the modelled step, before its correction by measured steps; alone: the step of one rank;
    /// computing: the step of all ranks without exchange.
    double step = 0, alone = 0, computing = 0;
    /// Noise of the measured one-rank step; set only for one rank or without exchange, where no step is simulated.
    double noise = 0;
  };
  /// A step as it is modelled, before `correction`. Empty: it cannot be modelled, and `reason` says why.
  std::optional<Modelled> modelled(const OwnStep&, std::string& reason) const;
  std::optional<Modelled> simulated(const OwnStep&, const core::Machine&, double alone_on_core_s,
                                    std::string& reason) const;
  double ranks_per_core(std::int64_t ranks) const;
  double slowdown(const OwnStep&, double alone_s) const;
  Correction correction(const OwnStep&) const;
  /// The links of the step's system, or else those of the system with the most measured exchanges; empty: no exchange
  /// was measured.
  std::optional<core::Machine> machine_for(const OwnStep&) const;

  std::vector<OwnStep> rows_;
  std::vector<MeasuredCollective> measured_collectives_;
  CollectiveCalibration collectives_;
  OwnStepOptions options_;
  std::int64_t most_ranks_ = 1;
  double spread_ = 0;
  mutable std::map<std::string, std::optional<Modelled>> simulated_;  ///< by curve, ranks, ranks a node, computing time
};

Score score(const OwnStepCalibration&, std::span<const OwnStep> rows, const std::string& file);

}  // namespace gradmeter::predict
