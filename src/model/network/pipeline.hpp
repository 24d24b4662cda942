// SPDX-License-Identifier: Apache-2.0
// Parts of a network's pass besides its layers: recorded work, gradients summed over micro-batches, a weight that two
// stages share, and memory.
#pragma once
#include <array>
#include <cstddef>
#include <vector>

#include "model/model.hpp"
#include "model/network/part.hpp"
#include "model/network/stage.hpp"
#include "runtime/device.hpp"

namespace gradmeter::model {

/// Records the work of a whole network's pass, so that the next pass on the same memory submits it without calling the
/// layers again. In a loop of training all passes but the first two use the same memory. The loss is not recorded,
/// since each pass has another outcome. The work of layers must depend on nothing but its operands, and tensors must be
/// announced in ascending order (`Model::pass`). Cost of submitting recorded work: `bench_harness` measures the time
/// between its kernels.
/// Memory: a copy of the captures of each piece of work.
class RecordedPass {
 public:
  /// The operands by which passes are compared: equal operands make equal passes. The memory says on which device a
  /// pass runs.
  struct Operands {
    ConstBuffer parameters = runtime::no_floats, inputs = runtime::no_floats;
    Buffer gradients = runtime::no_floats;
    std::size_t samples = 0;
    int threads = 0;
    bool operator==(const Operands&) const = default;
  };

  bool is_of(const Operands& o) const { return recorded_ && last_ == o; }
  /// Whether this pass is to be recorded, because the last one had the same operands. Remembers the operands.
  bool should_record(const Operands&);
  /// Must be called when memory of the layers has been replaced.
  void forget() { recorded_ = false, last_ = {}; }

  /// Begins to record: the work of the layers then goes to the two queues below, and tensors are announced to this
  /// object first.
  void begin();
  runtime::RecordingQueue forward(Queue& queue) { return {queue, forward_}; }
  runtime::RecordingQueue backward(Queue& queue) { return {queue, backward_}; }
  void announce() { announced_after_.push_back(backward_.size()); }
  void end() { recorded_ = true; }

  void submit_forward(Queue&) const;
  void submit_backward(Queue&, const Model::Ready&) const;

 private:
  Operands last_;
  bool recorded_ = false;  ///< the pass on the last operands is recorded
  std::vector<runtime::RecordedWork> forward_, backward_;
  /// Number of pieces of backward work that come before each tensor is announced.
  std::vector<std::size_t> announced_after_;
};

/// Adds up the gradients of k micro-batches in their order, and multiplies by 1/k once. This is the arithmetic of an
/// averaging all-reduce that sums in rank order, to the bit.
/// Cost: 12 bytes of traffic an element for each micro-batch after the first; elements · 4 bytes of memory when k > 1.
class GradientSum {
 public:
  explicit GradientSum(std::size_t elements, std::size_t micro_batches)
      : elements_(micro_batches > 1 ? elements : 0), micro_batches_(micro_batches) {}
  std::size_t micro_batches() const { return micro_batches_; }
  /// The buffer for the gradients of micro-batch `i`. The buffer of the last one holds the average in the end.
  Buffer target(Queue&, std::size_t i, const Buffer& gradients);
  /// Adds elements [offset, offset + count) of micro-batch `i` to the sum. For the last micro-batch they become the
  /// average.
  void take(Queue&, std::size_t i, const Buffer& gradients, std::size_t offset, std::size_t count);

 private:
  std::size_t elements_, micro_batches_;
  runtime::OwnedBuffer sum_;  ///< allocated when the first target is asked for
};

/// The samples in each of `micro_batches` equal parts. Errors: UsageError when the batch does not divide.
std::size_t micro_batch_samples(std::size_t samples, std::size_t micro_batches);
/// Samples [first, first + count) of a batch whose inputs have `features` numbers.
Batch part_of(const Batch&, std::size_t features, std::size_t first, std::size_t count);

/// Hands out floats one after another, from private memory or memory that peers can read. Without memory it only
/// counts.
class MemoryPlanner {
 public:
  MemoryPlanner() = default;
  MemoryPlanner(const Buffer& own, const Buffer& seen) : own_memory_(own), seen_memory_(seen) {}
  /// Returns memory aligned to a cache line; empty if it only counts.
  Buffer take(std::size_t floats, bool seen_by_peers);
  std::size_t own() const { return own_; }
  std::size_t seen() const { return seen_; }

 private:
  Buffer own_memory_ = no_floats, seen_memory_ = no_floats;
  std::size_t own_ = 0, seen_ = 0;  ///< floats taken
};

/// The weight that the last stage of a pipeline shares with the first: a softmax that is tied to an embedding. The
/// first stage owns the weight. Before a run it sends the weight to the last stage. After the backward pass of the last
/// micro-batch, the last stage sends its gradient, averaged over micro-batches, and the first adds it to its own. So
/// both stages compute with the same bits, whatever a strategy, a codec or an optimizer does with weights. Cost: one
/// message of `floats` each way in a pass. That is as much as for summing the gradients of two copies (Megatron-LM's
/// embedding group), while the optimizer has its work and state only once. The weight is sent while the pipeline fills.
/// On other stages, and in models without a tied weight, `floats` is 0, and no call does anything.
class TiedWeight {
 public:
  TiedWeight(const HeldLayers&, const Part&);

  std::size_t floats() const { return held_.tied_between_stages(); }
  /// Whether this is the last stage, which uses the first stage's weight.
  bool uses() const { return !is_first_ && floats() > 0; }
  /// The floats in which the last stage sums the gradient over micro-batches.
  std::size_t summed_floats() const { return uses() && micro_batches_ > 1 ? floats() : 0; }
  /// Adds the messages of one pass, or of one forward pass alone.
  void count(PeerTraffic&, bool backward) const;

  /// Takes memory that peers can read, for the weight and then for its gradient.
  std::array<Buffer, 2> take_memory(MemoryPlanner& from) const {
    return {from.take(floats(), true), from.take(floats(), true)};
  }
  void set_memory(const std::array<Buffer, 2>& memory) { weight_ = memory[0], gradient_ = memory[1]; }
  /// in_use: true where submitted work may still read the weight that was received.
  void begin(Queue&, const Buffer& parameters, bool in_use);
  /// Waits until all messages have left.
  void end();

  /// For the last stage, after `await_weight`.
  const Buffer& weight() const { return weight_; }
  void await_weight();
  Buffer gradient_target(Queue&, std::size_t micro_batch);
  /// Must be called after the micro-batch's backward pass.
  void return_gradient(Queue&, std::size_t micro_batch);

  /// Clears the gradient on the first stage before the backward pass of a micro-batch. Its layer adds to the gradient,
  /// because in a model with one stage the last layer has already written it.
  void clear(Queue&, const Buffer& gradients) const;
  /// Posts the receive of the gradient. Call it before the last micro-batch is sent: when the answer arrives, nobody
  /// reads that memory any more.
  void expect_gradient();
  /// Must be called before this tensor is announced.
  void add_gradient(Queue&, std::size_t tensor, const Buffer& gradients);

 private:
  bool owns() const { return is_first_ && floats() > 0; }
  Buffer of(const Buffer& flat) const;

  const HeldLayers& held_;
  Peers* peers_;
  bool is_first_;
  std::size_t micro_batches_;
  GradientSum sum_;
  Buffer weight_ = runtime::no_floats, gradient_ = runtime::no_floats;
  /// First stage: the weight that is sent, and its gradient that is expected; last stage: the reverse.
  TransferPtr left_, expected_;
};

}  // namespace gradmeter::model
