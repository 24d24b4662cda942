// SPDX-License-Identifier: Apache-2.0
// Calibrates machines on measured steps, predicts other steps, and scores these predictions beside naive ones.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "predict/fit.hpp"
#include "predict/measurements.hpp"
#include "predict/step.hpp"

namespace gradmeter::predict {

/// The source of a predicted time. data_sheet: terms of the machine as priors give them. fit: terms fitted to measured
/// steps. measured_step: a measured step of the same network, scaled to the number of GPUs. layer_costs: the network's
/// layer table.
enum class Basis : std::uint8_t { data_sheet, fit, measured_step, layer_costs };
std::string_view name(Basis);

/// A step time with its 90 % interval [s].
struct Prediction {
  double seconds = 0, low = 0, high = 0;
  StepParts parts = {};  ///< their sum is `seconds`
  double flops = 0;      ///< FLOP of products and attention in a step, of all GPUs, without recomputation; 0: unknown
  MemoryParts memory = {};  ///< the memory of one rank; all 0: unknown
  std::string largest_part = {};
  Basis basis = Basis::data_sheet;
  /// The factor, already in `seconds`, that corrects the model's time by measured rows of the same network; 1: there is
  /// no such row. Comparisons of unlike steps divide `seconds` by it, since it is known better for one step than for
  /// the other.
  double correction = 1;
  /// True if `seconds` is the measured step of the same network on as many GPUs, whatever connects them.
  bool is_measured = false;
};
/// The least half width of a 90 % interval, as a difference of logarithms; it is not zero, since sources round their
/// times.
inline constexpr double least_spread = 0.05;
/// Sets the 90 % interval to seconds·exp(±h) with h = hypot(spread, 0.03·log2(rank_ratio)). spread: the half width, as
/// a difference of logarithms, on as many ranks as the calibration had. rank_ratio: the prediction's ranks ÷ the
/// calibration's; values below 1 count as 1.
void set_interval(Prediction&, double spread, double rank_ratio);
/// The spread within which |log(predicted ÷ measured)| of a further row lies with 90 % probability.
/// absolute_log_errors: |log(predicted ÷ measured)| of rows, each predicted by a fit that had left it out. Source:
/// Vovk, Gammerman, Shafer, Algorithmic Learning in a Random World, 2005 (conformal prediction).
double spread_of(std::vector<double> absolute_log_errors);
/// The noise (half the width of a 95 % interval, divided by the time) that is assumed of a measurement without an
/// interval.
inline constexpr double noise_without_interval = 0.1;
/// The noise that is assumed between launches of the same work; the interval of one launch says nothing of it.
/// In results/predict.md, steps of one rank differ by 12 to 21 % between two launches.
inline constexpr double noise_between_launches = 0.1;
/// The correction of a model by measurements of the same computation or collective. All of these measurements are
/// averaged; those with a similar number of ranks (and for collectives a similar number of bytes) have the largest
/// weight.
struct Correction {
  double factor = 1;  ///< measured ÷ modelled; predictions are multiplied by it
  double noise = 0;   ///< half the width of the 95 % interval of those measurements, divided by the measured times
};
/// The spread of a prediction that was multiplied by `Correction::factor`: the sum, in quadrature, of four terms. (1)
/// `spread`, that of the prediction without the factor. (2) On more ranks than were measured (rank_ratio above 1),
/// |log(factor)|, since the error that the factor corrects may be anything from zero to twice as large there. (3) The
/// noise of the measurements behind the prediction, scaled to 90 %: `Correction::noise` and `noise_between_launches`,
/// in quadrature. (4) The same noise again, for the measurement that the prediction is compared with.
double spread_with(double spread, const Correction&, double rank_ratio);

struct PredictionOrReason {
  std::optional<Prediction> prediction = {};
  std::string reason = {};  ///< why there is no prediction
};

/// The result of calibration for the systems of its rows: the fitted terms, and how far predictions were from rows that
/// their fit had left out.
class Calibration {
 public:
  explicit Calibration(std::vector<TrainingStep> rows);
  /// Predicts a row on the machine of its system. If no calibration row is of this system, the machine is that of the
  /// data sheet of the row's GPU.
  PredictionOrReason predict(const TrainingStep&) const;
  /// Predicts a row on the given machine, with the machine's fit if it has one. Calibration rows count only if they are
  /// of the GPU that the row states.
  PredictionOrReason predict(const TrainingStep&, const core::Machine&) const;
  /// The machine of the row's system, with its fit. If no calibration row is of this system and of the row's GPU, the
  /// machine has no fit.
  /// Precondition: machine_of(row) is known.
  const core::Machine& machine(const TrainingStep&) const;

  /// The rows that have a measured time.
  std::span<const TrainingStep> rows() const { return rows_; }

  /// Naive predictions of a row [s]; empty where the calibration rows allow none. The first assumes that each GPU
  /// reaches the median FLOP/s of a GPU in the system's calibration rows. The second assumes that each GPU has the
  /// throughput of a GPU in one calibration row: of the rows with the same system, model, micro-batch, precision,
  /// strategy and data, the one with the fewest GPUs.
  std::optional<double> seconds_at_constant_flops(const TrainingStep&) const;
  std::optional<double> seconds_at_constant_throughput(const TrainingStep&) const;

 private:
  /// Estimates log(predicted by the terms ÷ measured) of a row from calibration rows of the same network. Those rows
  /// are predicted on the machine of their own system, with its fit: if the row is predicted on a changed machine, the
  /// estimate must not cancel the effect of the change. The error of the terms is modelled as a Gaussian process, the
  /// sum of two deviations: one of 15 % that all rows of the network share, and one of 20 % of which two rows share
  /// more if their meshes and micro-batches are more alike. Measurements have a deviation of 4 %. Cost: n³/3 FLOP for n
  /// such rows. Source: Rasmussen, Williams, Gaussian Processes for Machine Learning, 2006, section 2.2.
  double log_error(const TrainingStep&) const;
  /// True if the terms for `step` are fitted to the calibration row `row`. This holds if `row` is the usual step of a
  /// transformer on the same system and GPU.
  static bool is_fitted(const TrainingStep& row, const TrainingStep& step);

  std::vector<TrainingStep> rows_;
  mutable std::map<std::string, core::Machine> systems_;  ///< by system and device; fitted when first asked for
};

/// The scores of a table's predictions. Errors and shares are in percent, except Outlier::error, which is a fraction; a
/// score is empty if no row counts for it. `median` and `p90` are quantiles of the errors whose mean is `mape`.
struct Score {
  std::string file = {};
  std::size_t rows = 0, unpredicted = 0;
  std::optional<double> mape = {};      ///< mean of |predicted − measured| ÷ measured, over predicted rows
  std::optional<double> mape_all = {};  ///< as `mape`, with 100 for unpredicted rows; rows with experts are left out
  std::optional<double> median = {}, p90 = {};
  std::optional<double> bias = {};        ///< mean of (predicted − measured) ÷ measured
  std::optional<double> coverage = {};    ///< share of rows whose measured time is in the 90 % interval
  std::optional<double> half_width = {};  ///< mean of half the interval's width ÷ predicted
  std::optional<double> constant_flops_mape = {}, linear_mape = {};  ///< `mape` of the naive predictions
  std::size_t constant_flops_rows = 0, linear_rows = 0;  ///< number of rows that each naive prediction applies to
  std::optional<double> mape_where_constant_flops = {}, mape_where_linear = {};  ///< `mape` over these rows
  std::map<std::string, std::size_t> reasons = {};  ///< number of unpredicted rows, by reason
  struct Outlier {
    std::string id, part;  ///< part: the largest part of the predicted step
    double error;          ///< (predicted − measured) ÷ measured
  };
  std::vector<Outlier> outliers = {};  ///< the worst first
};
/// A measured row with its predictions.
struct JudgedRow {
  std::string id;
  double measured_s = 0;
  std::optional<Prediction> prediction = {};
  std::string reason = {};  ///< why the row is not predicted; empty: it is
  std::optional<double> constant_flops_s = {}, linear_s = {};
};
Score score_of(std::span<const JudgedRow>, const std::string& file);
Score score(const Calibration&, std::span<const TrainingStep> rows, const std::string& file);
/// Scores each row by a calibration on the rows of all other groups. group: gives a row's group; the rows of a group
/// are left out together.
Score score_leaving_out(std::span<const TrainingStep> rows, const std::string& file,
                        const std::function<std::string(const TrainingStep&)>& group);

/// The usual group of a row: the rows of the same network, hidden size, tensor and pipeline parallelism, micro-batch
/// and recomputation. A fit to some of them predicts the others too easily, so a group is left out as a whole when the
/// error of a fit is estimated.
std::string group_of(const TrainingStep&);

}  // namespace gradmeter::predict
