// SPDX-License-Identifier: Apache-2.0
// Calibrates machines on measured steps, predicts others, and scores the predictions beside naive ones.
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

namespace gradmeter::predict {

/// What a prediction is made from.
enum class Basis : std::uint8_t { data_sheet, fit, measured_step, layer_costs };
std::string_view name(Basis);

/// A step time with its 90 % interval [s].
struct Prediction {
  double seconds = 0, low = 0, high = 0;
  StepParts parts = {};     ///< they add up to `seconds`
  double flops = 0;         ///< of products and attention, over all GPUs, without recomputation; 0: not known
  MemoryParts memory = {};  ///< of a rank; all 0: not known
  std::string largest_part = {};
  Basis basis = Basis::data_sheet;
};
/// No interval is narrower, in the logarithm: sources state times to some percent.
inline constexpr double least_spread = 0.05;
/// Sets the 90 % interval. spread: its half width in the logarithm on ranks like those calibrated on. times_ranks: by
/// how much there are more; the width grows by 3 % with each doubling.
void set_interval(Prediction&, double spread, double times_ranks);
/// The spread that follows from |log(predicted ÷ measured)| of rows that were left out: what the next such row is
/// within with 90 % probability. Source: Vovk, Gammerman, Shafer, Algorithmic Learning in a Random World, 2005
/// (conformal prediction).
double spread_of(std::vector<double> away);
/// What half the 95 % interval is taken for where a measurement came without one: not zero. 10 % is the deviation that
/// fits of collectives assume.
inline constexpr double noise_without_interval = 0.1;
/// What a model missed of the same thing as it was measured, on the nearest ranks and sizes.
struct Missed {
  double factor = 1;  ///< measured ÷ modelled, by which predictions are corrected
  double noise = 0;   ///< half the 95 % interval of those measurements, as a share of them
};
/// The spread of a prediction that is corrected so, for so many times as many ranks. On more ranks the factor may as
/// well vanish as double. The noise counts twice: what the prediction stands on has it, and so has what it is compared
/// with.
double spread_with(double spread, const Missed&, double times_ranks);

struct PredictionOrReason {
  std::optional<Prediction> prediction = {};
  std::string reason = {};  ///< why there is none
};

/// All that calibration rows say of systems: fitted terms, and how far rows that were left out lay from the fit.
class Calibration {
 public:
  explicit Calibration(std::vector<MeasuredStep> rows);
  /// On the machine of the row's system, or of its GPU's data sheet.
  PredictionOrReason predict(const MeasuredStep&) const;
  /// On this machine, whatever the row's GPU: by its fit, if it has one.
  PredictionOrReason predict(const MeasuredStep&, const core::Machine&) const;
  /// The machine of the row's system with its fit; without calibration rows of the system it has none.
  /// Precondition: machine_of(row) is known.
  const core::Machine& machine(const MeasuredStep&) const;

  /// Naive predictions [s], nothing where calibration rows allow none. constant_flops: the median FLOP/s a GPU of the
  /// system's calibration rows. linear: the throughput of the same model, batch and precision at its smallest number of
  /// GPUs, times GPUs.
  std::optional<double> constant_flops(const MeasuredStep&) const;
  std::optional<double> linear(const MeasuredStep&) const;

 private:
  std::vector<MeasuredStep> rows_;
  mutable std::map<std::string, core::Machine> systems_;  ///< fitted when first asked for
};

/// Scores of one table, in percent; nothing where they cannot be had.
struct Score {
  std::string file = {};
  std::size_t rows = 0, unpredicted = 0;
  std::optional<double> mape = {};      ///< mean of |predicted − measured| ÷ measured, over predicted rows
  std::optional<double> mape_all = {};  ///< an unpredicted row counts as 100; rows with experts are left out
  std::optional<double> median = {}, p90 = {};
  std::optional<double> bias = {};                                   ///< mean of (predicted − measured) ÷ measured
  std::optional<double> coverage = {};                               ///< rows within their 90 % interval
  std::optional<double> half_width = {};                             ///< mean of half the interval ÷ predicted
  std::optional<double> constant_flops_mape = {}, linear_mape = {};  ///< of the naive predictions
  std::map<std::string, std::size_t> reasons = {};                   ///< why rows are unpredicted, and how many
  struct Outlier {
    std::string id, part;  ///< part: the largest of the step
    double error;          ///< (predicted − measured) ÷ measured
  };
  std::vector<Outlier> outliers = {};  ///< the worst first
};
/// A measured row with its predictions.
struct JudgedRow {
  std::string id;
  double measured_s = 0;
  std::optional<Prediction> prediction = {};
  std::string reason = {};  ///< why it cannot be predicted; empty: it can
  std::optional<double> constant_flops_s = {}, linear_s = {};
};
Score score_of(std::span<const JudgedRow>, const std::string& file);
Score score(const Calibration&, std::span<const MeasuredStep> rows, const std::string& file);
/// Scores each row by a calibration on the rows of all other groups. group: what rows have in common that are left out
/// together.
Score score_leaving_out(std::span<const MeasuredStep> rows, const std::string& file,
                        const std::function<std::string(const MeasuredStep&)>& group);

/// Rows of one group are not told apart by what is fitted: to learn how far a fit is off they are left out together.
std::string group_of(const MeasuredStep&);

}  // namespace gradmeter::predict
