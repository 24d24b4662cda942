// SPDX-License-Identifier: Apache-2.0
// Which few steps to measure, so that a machine's terms are known best.
#pragma once
#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "predict/measurements.hpp"

namespace gradmeter::predict {

struct Choice {
  std::size_t row = 0;  ///< index among the candidates
  double uncertainty =
      0;  ///< once it and those before it are measured: mean standard deviation of log(step) over all candidates
  std::string_view settles;  ///< the term whose uncertainty it lowers most
};
struct Choices {
  double uncertainty = 0;  ///< before any of them
  std::vector<Choice> rows;
};
/// The rows to measure next, in their order: each time the one after which the steps of all candidates are known best.
/// The terms' uncertainty is that of their priors and the `known` rows. Rows that no formula of terms predicts are
/// never chosen. A step's logarithm is taken as linear in the terms' logarithms, with a noise of 4 %. Source:
/// sequential V-optimal design; Fedorov, Theory of Optimal Experiments, 1972. Cost: O(count · candidates²).
Choices choose_rows(std::span<const MeasuredStep> candidates, std::span<const MeasuredStep> known, std::size_t count);

/// The rows of each system that `choose_rows` picks among its transformers; of other networks those of the fewest GPUs.
std::vector<MeasuredStep> most_telling(std::vector<MeasuredStep> rows, std::size_t of_each_system);

}  // namespace gradmeter::predict
