// SPDX-License-Identifier: Apache-2.0
// Metrics that only some strategies have: staleness, waits by cause, bytes against the forecast.
#pragma once
#include <cstddef>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bench/train/training.hpp"
#include "core/result.hpp"
#include "runtime/communicator.hpp"

namespace gradmeter::bench {

/// Samples of one rank's steps.
struct StepSamples {
  std::vector<double> times = {};            ///< time of each step [s]
  std::map<std::string, double> waits = {};  ///< total over all steps, by cause [s]
  double outside_training = 0;               ///< time between steps, for work that is not training [s]
};
void fill_waits(const StepSamples&, core::Metrics&);

/// Means over `period` consecutive steps. Exchanges repeat after that many steps, so each mean has an equal share of
/// them. Steps left over at the end are dropped, unless there are no others.
std::vector<double> period_means(std::span<const double> steps, std::size_t period);

/// Mean, 99th percentile and maximum of a histogram: counts[k] updates had staleness k.
struct StalenessSummary {
  double mean = 0;
  std::uint64_t p99 = 0, max = 0;
};
StalenessSummary summarise_staleness(std::span<const std::uint64_t> counts);

/// Fills in what the strategy has observed; nothing if it has counted no updates. seconds: the time spent training so
/// far.
void fill_observations(const dataparallel::Observations&, double seconds, core::Metrics&);
/// Fills in the state of the loss scale; nothing where the loss is not scaled.
void fill_loss_scale(const std::optional<dataparallel::LossScaler::State>&, core::Metrics&);
/// Fills in the bytes of a step, averaged over all steps, and their forecast. The status becomes `wrong` unless
/// TrainingTotals::is_right().
void fill_totals(const TrainingTotals&, core::Point&);

/// Marks the row as mistrusted, and puts `why` in front of any reason that the row has already.
void mistrust(core::Point&, const std::string& why);

// The noise of gradients, which shows how large a batch can usefully be. It is estimated from two batch sizes: that of
// a rank and that of all ranks. Source: McCandlish, Kaplan & Amodei, "An empirical model of large-batch training",
// arXiv:1812.06162, appendix A.1.

/// Squared norms of one step's gradients, all at the same weights.
struct GradientNorms {
  double part_square = 0;  ///< mean over the ranks of the squared norm of a rank's gradient
  double mean_square = 0;  ///< squared norm of the mean gradient
};

/// Collective. `mine`: this rank's gradient of the mean loss over its part of the batch.
/// Cost: an all-reduce of 8 bytes an element, in chunks, and memory for one chunk.
GradientNorms gradient_norms(const runtime::Communicator&, std::span<const float> mine);

/// Estimates the noise scale of gradients, tr Σ/‖G‖² (see samples()). It averages over steps before it divides, since a
/// quotient of two noisy numbers would be biased.
class NoiseScale {
 public:
  /// part_batch, whole_batch: the numbers of samples behind part_square and mean_square.
  /// Errors: std::invalid_argument unless part_batch < whole_batch.
  NoiseScale(std::size_t part_batch, std::size_t whole_batch);
  void add(const GradientNorms&);
  std::size_t steps() const { return steps_; }

  /// ‖G‖², without bias, where G is the gradient over all data; below zero where noise hides it. Zero before the first
  /// step.
  double gradient_square() const;
  /// tr Σ, without bias, where Σ is the covariance of one sample's gradient.
  double variance() const;
  /// tr Σ/‖G‖² [samples]; empty where ‖G‖² or tr Σ is not above zero.
  std::optional<double> samples() const;

 private:
  double part_batch_, whole_batch_;
  std::size_t steps_ = 0;
  GradientNorms sums_;
};

}  // namespace gradmeter::bench
