// SPDX-License-Identifier: Apache-2.0
// The tools of a network's pass besides its layers: recorded work, the sum of gradients over micro-batches, a weight
// that two stages share, and memory.
#pragma once
#include <array>
#include <cstddef>
#include <vector>

#include "model/model.hpp"
#include "model/network/part.hpp"
#include "model/network/stage.hpp"
#include "runtime/device.hpp"

namespace gradmeter::model {

/// Records the work of a pass of a network that is not split, so that the next pass on the same memory can submit the
/// recorded work without calling the layers again. A pass is recorded if it has the same operands as the one before it.
/// The loss is not recorded, since each pass writes it to another place. The work of layers must depend on nothing but
/// its operands, and tensors must be announced, by a call of `Model::Ready` for each, in ascending order.
/// Memory: for each piece of work, a copy of the variables that its callable has captured.
class RecordedPass {
 public:
  /// The operands by which passes are compared: passes with equal operands submit equal work. The buffers also tell on
  /// which device a pass runs.
  struct Operands {
    ConstBuffer parameters = runtime::empty_buffer, inputs = runtime::empty_buffer;
    Buffer gradients = runtime::empty_buffer;
    std::size_t samples = 0;
    int threads = 0;
    bool operator==(const Operands&) const = default;
  };

  /// True if a pass with these operands is recorded.
  bool is_of(const Operands& o) const { return recorded_ && last_ == o; }
  /// True if this pass is to be recorded, because the last one had the same operands. Remembers the operands.
  bool should_record(const Operands&);
  /// Discards what was recorded. Must be called when memory of the layers has been replaced.
  void forget() { recorded_ = false, last_ = {}; }

  /// Begins to record. Until `end`, the work of the layers must be submitted to the queues of `forward` and `backward`,
  /// and `announce` must be called for each tensor before the tensor is announced to the model's caller.
  void begin();
  runtime::RecordingQueue forward(Queue& queue) { return {queue, forward_}; }
  runtime::RecordingQueue backward(Queue& queue) { return {queue, backward_}; }
  void announce() { announced_after_.push_back(backward_.size()); }
  void end() { recorded_ = true; }

  void submit_forward(Queue&) const;
  void submit_backward(Queue&, const Model::Ready&) const;

 private:
  Operands last_;
  bool recorded_ = false;  ///< whether the pass on `last_` is recorded
  std::vector<runtime::RecordedWork> forward_, backward_;
  /// For each tensor: the number of pieces of backward work that are submitted before it is announced.
  std::vector<std::size_t> announced_after_;
};

/// Adds up the gradients of k micro-batches in their order, and multiplies the sum by 1/k once. The result equals, to
/// the bit, that of an averaging all-reduce that sums in rank order.
/// Cost: 12 bytes of traffic an element for each micro-batch after the first; elements · 4 bytes of memory when k > 1.
class GradientSum {
 public:
  explicit GradientSum(std::size_t elements, std::size_t micro_batches)
      : elements_(micro_batches > 1 ? elements : 0), micro_batches_(micro_batches) {}
  std::size_t micro_batches() const { return micro_batches_; }
  /// Returns the buffer to which micro-batch `i` must write its gradients: the sum for the first of several,
  /// `gradients` for all others.
  Buffer target(Queue&, std::size_t i, const Buffer& gradients);
  /// Adds elements [offset, offset + count) of micro-batch `i` to the sum. After the last micro-batch these elements of
  /// `gradients` are the average.
  void add(Queue&, std::size_t i, const Buffer& gradients, std::size_t offset, std::size_t count);

 private:
  std::size_t elements_, micro_batches_;
  runtime::OwnedBuffer sum_;  ///< allocated when the first target is asked for
};

/// The number of samples in each of `micro_batches` equal parts of a batch. Errors: UsageError when the batch does not
/// divide evenly.
std::size_t micro_batch_samples(std::size_t samples, std::size_t micro_batches);
/// Samples [first, first + count) of a batch. features: the number of inputs of a sample.
Batch part_of(const Batch&, std::size_t features, std::size_t first, std::size_t count);

/// Hands out floats one after another, from two buffers: the rank's own memory, and memory that peers can read. A
/// planner that is made without buffers only counts how many floats are asked for.
class MemoryPlanner {
 public:
  MemoryPlanner() = default;
  MemoryPlanner(const Buffer& own, const Buffer& peer_readable)
      : own_memory_(own), peer_readable_memory_(peer_readable) {}
  /// Returns memory aligned to a cache line; an empty buffer if the planner only counts.
  Buffer take(std::size_t floats, bool is_peer_readable);
  /// The floats taken so far from the rank's own memory, and from the memory that peers can read.
  std::size_t own() const { return own_; }
  std::size_t peer_readable() const { return peer_readable_; }

 private:
  Buffer own_memory_ = empty_buffer, peer_readable_memory_ = empty_buffer;
  std::size_t own_ = 0, peer_readable_ = 0;
};

/// The weight that the last stage of a pipeline shares with the first: a softmax that is tied to an embedding. The
/// first stage owns the weight, and sends it to the last stage at the beginning of each pass, while the pipeline fills.
/// After the last micro-batch's backward pass, the last stage returns its gradient of the weight, averaged over
/// micro-batches, and the first stage adds this to its own gradient. So both stages compute with the same bits,
/// whatever a strategy, a codec or an optimizer does with weights.
/// Cost: one message of `floats` in each direction in a pass. Two copies of the weight whose gradients are summed
/// (Megatron-LM's embedding group) would cost as much, and the optimizer would have its work and state twice.
/// On stages between the first and the last, and in models without a tied weight, `floats` is 0, and no call does
/// anything.
class TiedWeight {
 public:
  TiedWeight(const HeldLayers&, const Part&);

  std::size_t floats() const { return held_.tied_between_stages(); }
  /// True if this is the last stage, which uses the first stage's weight.
  bool uses() const { return !is_first_ && floats() > 0; }
  /// Floats of the memory in which the last stage sums the gradient over micro-batches; 0 if it needs none.
  std::size_t summed_floats() const { return uses() && micro_batches_ > 1 ? floats() : 0; }
  /// Adds the messages of one pass, or of one forward pass alone.
  void add_traffic(PeerTraffic&, bool backward) const;

  /// Takes two buffers that peers can read: first for the weight, then for its gradient.
  std::array<Buffer, 2> take_memory(MemoryPlanner& from) const {
    return {from.take(floats(), true), from.take(floats(), true)};
  }
  void set_memory(const std::array<Buffer, 2>& memory) { weight_ = memory[0], gradient_ = memory[1]; }
  /// Begins a pass: the first stage sends the weight, and the last stage posts its receive. in_use: whether work
  /// already submitted may still read the weight that was received before.
  void begin(Queue&, const Buffer& parameters, bool in_use);
  /// Waits until this stage's messages have left.
  void end();

  /// The received weight, for the last stage. Valid after `await_weight`.
  const Buffer& weight() const { return weight_; }
  void await_weight();
  /// The buffer to which the last stage must write the micro-batch's gradient of the weight; empty on other stages.
  Buffer gradient_target(Queue&, std::size_t micro_batch);
  /// On the last stage, adds the micro-batch's gradient to the sum, and sends the average after the last micro-batch.
  /// Must be called after the micro-batch's backward pass.
  void return_gradient(Queue&, std::size_t micro_batch);

  /// On the first stage, sets the weight's gradient to zero before the backward pass of a micro-batch. This is needed
  /// because the first layer adds to that gradient: in a model with one stage, the last layer has already written its
  /// share there.
  void clear_gradient(Queue&, const Buffer& gradients) const;
  /// On the first stage, posts the receive of the gradient. Call it before the last micro-batch is sent. The gradient
  /// can only arrive after that; by then nothing reads the memory in which it is received.
  void expect_gradient();
  /// On the first stage, adds the received gradient if `tensor` is the tied weight. Must be called before that tensor
  /// is announced.
  void add_gradient(Queue&, std::size_t tensor, const Buffer& gradients);

 private:
  bool owns() const { return is_first_ && floats() > 0; }
  Buffer weight_in(const Buffer& flat) const;

  const HeldLayers& held_;
  Peers* peers_;
  bool is_first_;
  std::size_t micro_batches_;
  GradientSum gradient_sum_;
  Buffer weight_ = runtime::empty_buffer, gradient_ = runtime::empty_buffer;
  /// On the first stage, `send_` is the weight that is sent and `receive_` the gradient to be received; on the last
  /// stage the reverse.
  TransferPtr send_, receive_;
};

}  // namespace gradmeter::model
