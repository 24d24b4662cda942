// SPDX-License-Identifier: Apache-2.0
// Models that are split into parts on several ranks: the parts, the order in which a part takes its micro-batches, and
// what a part needs from the ranks that hold the other parts.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "runtime/device.hpp"

namespace gradmeter::model {

/// Another stage of the pipeline, as seen from this rank's stage: the one before or after this rank's, or the first or
/// last of all stages.
enum class OtherStage : std::uint8_t { previous, next, first, last };

/// A message under way. Its memory must not be used until `wait` returns.
class Transfer {
 public:
  virtual ~Transfer() = default;
  virtual void wait() = 0;
};
using TransferPtr = std::unique_ptr<Transfer>;

/// The ranks that hold the other parts of a model. This rank sums with the tensor ranks of its own stage, which share
/// its layers, and exchanges messages with ranks of other stages, which hold other layers. The implementation knows who
/// they are and how to reach them. All ranks of one replica of a model make matching calls in the same order. Buffers
/// given to a call must come from `memory`. Errors: those of the fabric that carries the calls.
class Peers {
 public:
  virtual ~Peers() = default;
  virtual std::size_t tensor_rank() const = 0;
  virtual std::size_t tensor_ranks() const = 0;
  virtual std::size_t stage() const = 0;
  virtual std::size_t stages() const = 0;

  /// Sums in place over the tensor ranks of this stage, with equal bits on all of them. Returns when the sum is done.
  virtual void sum(runtime::Buffer) = 0;
  /// Send to, and receive from, the rank of another stage that has the same tensor rank. Messages arrive in the order
  /// of their sending. A receive that is posted well before its message is sent saves the transport a copy. A sent
  /// message has the contents that its buffer has after all work submitted so far. `ready`: the event after which the
  /// buffer of a receive may be overwritten; null: it may be overwritten at once.
  virtual TransferPtr send(OtherStage, runtime::ConstBuffer) = 0;
  virtual TransferPtr receive(OtherStage, runtime::Buffer, runtime::EventPtr ready) = 0;

  /// Zeroed memory that peers can read. It is never given back.
  virtual runtime::Buffer memory(std::size_t floats) = 0;
};

/// The memory that one rank's part of a model takes from `Peers`, and the length of its longest sum.
struct PeerNeeds {
  std::size_t memory_bytes = 0;       ///< taken from `Peers::memory`, once
  std::size_t largest_sum_bytes = 0;  ///< length of the longest buffer that is summed
};

/// The traffic of one rank's part of a model in one pass, or in one forward pass alone.
struct PeerTraffic {
  std::vector<std::size_t> sums = {};  ///< floats of each sum over the tensor ranks, in order
  std::size_t messages = 0;            ///< number of messages to other stages
  std::size_t floats_sent = 0;         ///< floats in those messages
};

/// The order in which a stage takes the micro-batches of a step. gpipe: first all forward passes, then all backward
/// passes. 1f1b: a stage begins with one forward pass for each later stage; then forward and backward passes alternate,
/// so that no stage holds more micro-batches than there are stages. Both orders take equal time. They also give equal
/// bits, since both run the backward passes in the order of the micro-batches.
/// Sources: Huang et al., "GPipe", NeurIPS 2019; Narayanan et al., "PipeDream", SOSP 2019 (1F1B), with the flush of
/// Narayanan et al., SC21, section 2.2.
enum class PipelineOrder : std::uint8_t { one_f_one_b, gpipe };
std::string_view name(PipelineOrder);
/// Finds "1f1b" or "gpipe". Errors: for any other text, UsageError that names both.
PipelineOrder find_pipeline_order(std::string_view);

/// The part of a model that a rank holds; by default the whole model.
struct Part {
  std::size_t tensor_rank = 0, tensor_ranks = 1;
  std::size_t stage = 0, stages = 1;
  std::size_t micro_batches = 1;  ///< number of micro-batches into which a pass cuts its batch
  PipelineOrder order = PipelineOrder::one_f_one_b;
  /// The largest number of samples of a pass. A split model allocates its memory once, for this number.
  std::size_t largest_batch = 0;
  Peers* peers = nullptr;  ///< null: the model is whole, or only tells its sizes and cannot be run

  bool is_whole() const { return tensor_ranks == 1 && stages == 1; }
};

/// The places of a part's elements in the whole tensor, or in the flat buffers of the whole model: they lie in rows of
/// `columns` elements. The first row begins at element `first`, and each further row begins `stride` elements after the
/// beginning of the row before it.
struct WholePlace {
  std::size_t first = 0, columns = 0, stride = 0;
  /// The index, in the whole, of the part's element `i`.
  std::size_t of(std::size_t i) const { return first + i / columns * stride + i % columns; }
};

/// The forward or backward pass of one micro-batch.
struct PipelineStep {
  enum class Kind : std::uint8_t { forward, backward };
  Kind kind;
  std::size_t micro_batch;
  bool operator==(const PipelineStep&) const = default;
};
/// The steps of one stage in a pass, in order.
std::vector<PipelineStep> pipeline_steps(PipelineOrder, std::size_t stage, std::size_t stages,
                                         std::size_t micro_batches);
/// The steps of a forward pass alone, for validation.
std::vector<PipelineStep> forward_steps(std::size_t micro_batches);
/// The most micro-batches whose activations are held at once. If there are m micro-batches, it is min(stages − stage,
/// m) with 1f1b, and m with gpipe.
std::size_t most_in_flight(const std::vector<PipelineStep>&);
/// Cuts `weights` into `stages` runs of consecutive elements, so that the heaviest run is as light as possible. Returns
/// for each run the index behind its last element.
std::vector<std::size_t> balanced_runs(std::span<const double> weights, std::size_t stages);

}  // namespace gradmeter::model
