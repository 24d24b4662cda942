// SPDX-License-Identifier: Apache-2.0
// Chooses which few steps to measure, so that the other steps can be predicted best.
#pragma once
#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "predict/measurements.hpp"

namespace gradmeter::predict {

struct Choice {
  std::size_t row = 0;  ///< index among the candidates
  /// The mean over all candidates of the standard deviation of log(predicted step), once this row and all rows chosen
  /// before it are measured.
  double uncertainty = 0;
  std::string_view settles_term;  ///< the term whose uncertainty the measurement of this row lowers most
};
struct Choices {
  double uncertainty = 0;  ///< the same mean, before any of the rows is measured
  std::vector<Choice> rows;
};
/// Chooses up to `count` candidates to measure, in the order of measuring. Each is the candidate whose measurement most
/// lowers the mean uncertainty of all candidates' predicted steps. Candidates that TransformerStep cannot predict are
/// neither chosen nor counted in the means. The uncertainty of a machine's terms (predict/step.hpp) is at first that of
/// their priors, lowered by those `known` rows that have the system and GPU of the first predictable candidate. The
/// logarithm of a step is assumed to be linear in the logarithms of the terms, and a measurement to have 4 % noise.
/// Source: sequential V-optimal design; Fedorov, Theory of Optimal Experiments, 1972. Cost: O(count · candidates²).
Choices choose_rows(std::span<const TrainingStep> candidates, std::span<const TrainingStep> known, std::size_t count);

/// Returns for each system at most `of_each_system` rows of transformers, which `choose_rows` picks, and at most
/// `of_each_system` rows of other networks, those with the fewest GPUs. Two kinds of rows are left out: those without a
/// measured step, and those of transformers whose step is a quantile (not `is_usual_step`).
std::vector<TrainingStep> most_informative_rows(std::vector<TrainingStep> rows, std::size_t of_each_system);

}  // namespace gradmeter::predict
