// Metrics that only some strategies have: staleness, waits by cause, bytes against the forecast.
#pragma once
#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "bench/train/training.hpp"
#include "core/result.hpp"

namespace gradmeter::bench {

/// Of one rank's steps.
struct StepSamples {
  std::vector<double> times = {};            ///< of each step [s]
  std::map<std::string, double> waits = {};  ///< by cause [s]
  double outside_training = 0;               ///< between steps, for what is not training [s]
};
void fill_waits(const StepSamples&, core::Metrics&);

/// Of consecutive steps the means over `period` of them, after which exchanges repeat, so that each has its share of an
/// exchange; what is left at the end goes, unless it is all there is.
std::vector<double> period_means(std::span<const double> steps, std::size_t period);

/// Mean, 99th percentile and maximum of a histogram: counts[k] updates had staleness k.
struct StalenessSummary {
  double mean = 0;
  std::uint64_t p99 = 0, max = 0;
};
StalenessSummary summarise_staleness(std::span<const std::uint64_t> counts);

/// seconds: of training so far. Fills nothing where no server applied updates.
void fill_observations(const dataparallel::Observations&, double seconds, core::Metrics&);
/// Fills nothing where the loss is not scaled.
void fill_loss_scale(const std::optional<dataparallel::LossScaler::State>&, core::Metrics&);
/// Bytes of a step on average over all steps, and their forecast; status wrong when the totals differ.
void fill_totals(const TrainingTotals&, core::Point&);

}  // namespace gradmeter::bench
