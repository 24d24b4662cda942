// Which part of a model one rank holds, and in what order it takes its micro-batches.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "model/peers.hpp"

namespace gradmeter::model {

/// In what order a stage takes the micro-batches of a step. gpipe: all forward, then all backward. 1f1b: once the last
/// stage has one, backward and forward passes alternate, so that no stage holds more micro-batches than there are
/// stages. Equal times, and equal bits: backward goes in the micro-batches' order in both.
/// Sources: Huang et al., "GPipe", NeurIPS 2019; Narayanan et al., "PipeDream", SOSP 2019 (1F1B), with the flush of
/// Narayanan et al., SC21, section 2.2.
enum class PipelineOrder : std::uint8_t { one_f_one_b, gpipe };
std::string_view name(PipelineOrder);
/// "1f1b" or "gpipe". Errors: UsageError with both.
PipelineOrder find_pipeline_order(std::string_view);

/// By default the whole model.
struct Part {
  std::size_t tensor_rank = 0, tensor_ranks = 1;
  std::size_t stage = 0, stages = 1;
  std::size_t micro_batches = 1;  ///< that a pass cuts its batch into
  PipelineOrder order = PipelineOrder::one_f_one_b;
  std::size_t batch = 0;   ///< most samples of a pass: a split model allocates its memory once
  Peers* peers = nullptr;  ///< null: the model can be asked for its sizes, but not run

  bool is_whole() const { return tensor_ranks == 1 && stages == 1; }
};

/// Where a part's elements are in the whole tensor, or in the flat buffers of the whole model: rows of `columns`
/// elements that begin `stride` apart.
struct WholePlace {
  std::size_t first = 0, columns = 0, stride = 0;
  /// Of the part's element `i`.
  std::size_t of(std::size_t i) const { return first + i / columns * stride + i % columns; }
};

struct PipelineStep {
  enum class Kind : std::uint8_t { forward, backward };
  Kind kind;
  std::size_t micro_batch;
  bool operator==(const PipelineStep&) const = default;
};
/// What one stage does in a pass.
std::vector<PipelineStep> pipeline_steps(PipelineOrder, std::size_t stage, std::size_t stages,
                                         std::size_t micro_batches);
/// Forward without backward, for validation.
std::vector<PipelineStep> forward_steps(std::size_t micro_batches);
/// Micro-batches whose activations are held at once, at most: min(stages − stage, m) with 1f1b, m with gpipe.
std::size_t most_in_flight(const std::vector<PipelineStep>&);
/// The part of a pass in which a stage has nothing to do, all stages being equal: (K − 1) / (m + K − 1).
/// Source: GPipe, section 2.3.
double pipeline_bubble(std::size_t stages, std::size_t micro_batches);

/// Where each of `stages` runs of `weights` ends, so that the heaviest is as light as it can be.
std::vector<std::size_t> balanced_runs(std::span<const double> weights, std::size_t stages);

}  // namespace gradmeter::model
