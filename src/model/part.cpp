#include "model/part.hpp"

#include <algorithm>
#include <array>
#include <string>

#include "core/name.hpp"

namespace gradmeter::model {

using Kind = PipelineStep::Kind;

std::string_view name(PipelineOrder o) { return o == PipelineOrder::gpipe ? "gpipe" : "1f1b"; }

PipelineOrder find_pipeline_order(std::string_view text) {
  for (const PipelineOrder o : {PipelineOrder::one_f_one_b, PipelineOrder::gpipe}) {
    if (text == name(o)) return o;
  }
  const std::array<std::string, 2> known{"1f1b", "gpipe"};
  core::refuse_unknown("pipeline schedule", text, known);
}

std::vector<PipelineStep> pipeline_steps(PipelineOrder order, std::size_t stage, std::size_t stages,
                                         std::size_t micro_batches) {
  // The number of micro-batches on their way to the last stage and back when the first returns.
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

double pipeline_bubble(std::size_t stages, std::size_t micro_batches) {
  return static_cast<double>(stages - 1) / static_cast<double>(micro_batches + stages - 1);
}

}  // namespace gradmeter::model
