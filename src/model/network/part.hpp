// SPDX-License-Identifier: Apache-2.0
// Models that are split into parts on several ranks: the parts, the order of their micro-batches, and what they need
// from the ranks that hold the other parts.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "runtime/device.hpp"

namespace gradmeter::model {

/// Another stage of the pipeline: that before or after this one, or the first or last of all.
enum class Neighbour : std::uint8_t { previous, next, first, last };

/// A message under way. Its memory must not be used until `wait` returns.
class Transfer {
 public:
  virtual ~Transfer() = default;
  virtual void wait() = 0;
};
using TransferPtr = std::unique_ptr<Transfer>;

/// The ranks that hold the other parts. Calls sum with ranks that share this one's layers, and exchange messages with
/// ranks that hold the layers before and after. The implementation knows who they are and how to reach them. All ranks
/// of one replica of a model make matching calls in the same order. Buffers given to a call must come from `memory`.
/// Errors: those of the fabric below.
class Peers {
 public:
  virtual ~Peers() = default;
  virtual std::size_t tensor_rank() const = 0;
  virtual std::size_t tensor_ranks() const = 0;
  virtual std::size_t stage() const = 0;
  virtual std::size_t stages() const = 0;

  /// Sums in place over the tensor ranks of this stage, with equal bits on all of them. Returns when the sum is done.
  virtual void sum(runtime::Buffer) = 0;
  /// Sends to and receives from the same tensor rank of another stage, in order. If a receive is posted long before its
  /// message is sent, the transport needs no copy. The message sent is the result of all work submitted so far.
  /// `ready`: the event after which the memory of a receive may be overwritten; null: at once.
  virtual TransferPtr send(Neighbour, runtime::ConstBuffer) = 0;
  virtual TransferPtr receive(Neighbour, runtime::Buffer, runtime::EventPtr ready) = 0;

  /// Zeroed memory that peers can read. It is never given back.
  virtual runtime::Buffer memory(std::size_t floats) = 0;
};

/// What one rank's part of a model needs of `Peers`.
struct PeerNeeds {
  std::size_t memory_bytes = 0;       ///< taken from `memory`, once
  std::size_t largest_sum_bytes = 0;  ///< the longest buffer that is summed
};

/// The traffic of one rank's part of a model in one pass, or in one forward pass alone.
struct PeerTraffic {
  std::vector<std::size_t> sums = {};  ///< floats of each sum over the tensor ranks, in order
  std::size_t messages = 0;            ///< number of messages to other stages
  std::size_t floats_sent = 0;         ///< floats in those messages
};

/// The order in which a stage takes the micro-batches of a step. gpipe: all forward, then all backward. 1f1b: once the
/// last stage has one, backward and forward passes alternate, so that no stage holds more micro-batches than there are
/// stages. Both take equal time and give equal bits, since backward passes are in the order of the micro-batches.
/// Sources: Huang et al., "GPipe", NeurIPS 2019; Narayanan et al., "PipeDream", SOSP 2019 (1F1B), with the flush of
/// Narayanan et al., SC21, section 2.2.
enum class PipelineOrder : std::uint8_t { one_f_one_b, gpipe };
std::string_view name(PipelineOrder);
/// Finds "1f1b" or "gpipe". Errors: UsageError that names both.
PipelineOrder find_pipeline_order(std::string_view);

/// The part of a model that a rank holds; by default the whole model.
struct Part {
  std::size_t tensor_rank = 0, tensor_ranks = 1;
  std::size_t stage = 0, stages = 1;
  std::size_t micro_batches = 1;  ///< number of micro-batches into which a pass cuts its batch
  PipelineOrder order = PipelineOrder::one_f_one_b;
  std::size_t batch = 0;   ///< most samples of a pass, since a split model allocates its memory once
  Peers* peers = nullptr;  ///< null: the model only tells its sizes, and cannot be run

  bool is_whole() const { return tensor_ranks == 1 && stages == 1; }
};

/// The place of a part's elements in the whole tensor, or in the flat buffers of the whole model: rows of `columns`
/// elements, of which each begins `stride` elements after the one before.
struct WholePlace {
  std::size_t first = 0, columns = 0, stride = 0;
  /// The place of the part's element `i`.
  std::size_t of(std::size_t i) const { return first + i / columns * stride + i % columns; }
};

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
/// The most micro-batches whose activations are held at once: min(stages − stage, m) with 1f1b, m with gpipe.
std::size_t most_in_flight(const std::vector<PipelineStep>&);
/// Cuts `weights` into `stages` runs of neighbours such that the heaviest run is as light as possible. Returns the end
/// of each run.
std::vector<std::size_t> balanced_runs(std::span<const double> weights, std::size_t stages);

}  // namespace gradmeter::model
