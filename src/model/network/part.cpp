// SPDX-License-Identifier: Apache-2.0
#include "model/network/part.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <string>

#include "core/name.hpp"

namespace gradmeter::model {

using Kind = PipelineStep::Kind;

std::string_view name(PipelineOrder o) { return o == PipelineOrder::gpipe ? "gpipe" : "1f1b"; }

PipelineOrder find_pipeline_order(std::string_view text) {
  for (const PipelineOrder o : {PipelineOrder::one_f_one_b, PipelineOrder::gpipe}) {
    if (text == name(o)) return o;
  }
  const std::array<std::string, 2> names{"1f1b", "gpipe"};
  core::refuse_unknown("pipeline schedule", text, names);
}

std::vector<PipelineStep> pipeline_steps(PipelineOrder order, std::size_t stage, std::size_t stages,
                                         std::size_t micro_batches) {
  // The number of forward passes before forward and backward passes begin to alternate.
  const std::size_t ahead = order == PipelineOrder::gpipe ? micro_batches : std::min(stages - 1 - stage, micro_batches);
  std::vector<PipelineStep> steps;
  for (std::size_t i = 0; i < ahead; ++i) steps.push_back({Kind::forward, i});
  for (std::size_t i = 0; i < micro_batches; ++i) {
    if (i + ahead < micro_batches) steps.push_back({Kind::forward, i + ahead});
    steps.push_back({Kind::backward, i});
  }
  return steps;
}

std::vector<PipelineStep> forward_steps(std::size_t micro_batches) {
  std::vector<PipelineStep> steps;
  for (std::size_t i = 0; i < micro_batches; ++i) steps.push_back({Kind::forward, i});
  return steps;
}

std::size_t most_in_flight(const std::vector<PipelineStep>& steps) {
  std::size_t now = 0, most = 0;
  for (const PipelineStep& s : steps) {
    now = s.kind == Kind::forward ? now + 1 : now - 1;
    most = std::max(most, now);
  }
  return most;
}

std::vector<std::size_t> balanced_runs(std::span<const double> weights, std::size_t stages) {
  const std::size_t n = weights.size();
  constexpr double infinite = std::numeric_limits<double>::infinity();
  // heaviest[k][i]: weight of the heaviest run in the best division of the first i elements into k runs.
  // last_begin[k][i]: the first element of the last run of that division.
  std::vector heaviest(stages + 1, std::vector<double>(n + 1, infinite));
  std::vector last_begin(stages + 1, std::vector<std::size_t>(n + 1, 0));
  heaviest[0][0] = 0;
  for (std::size_t k = 1; k <= stages; ++k) {
    for (std::size_t i = k; i <= n; ++i) {
      double run = 0;
      for (std::size_t begin = i; begin-- > k - 1;) {
        run += weights[begin];
        const double most = std::max(heaviest[k - 1][begin], run);
        if (most < heaviest[k][i]) heaviest[k][i] = most, last_begin[k][i] = begin;
      }
    }
  }
  std::vector<std::size_t> ends(stages);
  for (std::size_t k = stages, end = n; k-- > 0;) {
    ends[k] = end;
    end = last_begin[k + 1][end];
  }
  return ends;
}

}  // namespace gradmeter::model
