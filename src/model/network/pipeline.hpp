// SPDX-License-Identifier: Apache-2.0
// Helpers of a network's pass besides its layers: recorded work, gradients summed over micro-batches, a weight that two
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

/// Records the work of a whole network's pass, so that the next pass on the same memory submits it without asking the
/// layers; in a loop of training all passes but the first two are on the same memory. The loss is not recorded, since
/// each pass has another outcome. Layers submit work that depends on nothing but their operands, and announce tensors
/// in ascending order (`Model::pass`). Cost of a pass that is submitted again: `bench_harness` measures the time
/// between its kernels. Memory: a copy of the captures of each piece of work.
class RecordedPass {
 public:
  /// Passes with equal operands are equal. The memory says on which device a pass runs.
  struct Operands {
    ConstBuffer parameters = runtime::no_floats, inputs = runtime::no_floats;
    Buffer gradients = runtime::no_floats;
    std::size_t samples = 0;
    int threads = 0;
    bool operator==(const Operands&) const = default;
  };

  bool is_of(const Operands& o) const { return recorded_ && last_ == o; }
  /// Whether to record the pass, because the pass before had the same operands. Remembers the operands.
  bool should_record(const Operands&);
  /// Must be called when the memory of the layers has moved.
  void forget() { recorded_ = false, last_ = {}; }

  /// Begins to record: the layers' work goes to the two queues below; each tensor is announced here first.
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
  std::vector<std::size_t> announced_after_;  ///< number of pieces of backward work before each tensor is announced
};

/// Adds up the gradients of k micro-batches in their order and multiplies by 1/k once: the arithmetic of an averaging
/// all-reduce that sums in rank order, to the bit.
/// Cost: 12 bytes of traffic an element and micro-batch after the first; elements · 4 bytes of memory when k > 1.
class GradientSum {
 public:
  explicit GradientSum(std::size_t elements, std::size_t micro_batches)
      : elements_(micro_batches > 1 ? elements : 0), micro_batches_(micro_batches) {}
  std::size_t micro_batches() const { return micro_batches_; }
  /// The buffer for the gradients of micro-batch `i`; the last one's memory later holds the average.
  Buffer target(Queue&, std::size_t i, const Buffer& gradients);
  /// Adds elements [offset, offset + count) of micro-batch `i` to the sum; for the last one, they become the average.
  void take(Queue&, std::size_t i, const Buffer& gradients, std::size_t offset, std::size_t count);

 private:
  std::size_t elements_, micro_batches_;
  runtime::OwnedBuffer sum_;  ///< allocated when the first target is asked for
};

/// Samples in each of `micro_batches` equal parts. Errors: UsageError when the batch does not divide.
std::size_t micro_batch_samples(std::size_t samples, std::size_t micro_batches);
/// Samples [first, first + count) of a batch whose inputs have `features` numbers.
Batch part_of(const Batch&, std::size_t features, std::size_t first, std::size_t count);

/// Hands out floats one after another, private or visible to peers. Without memory it only counts them.
class MemoryPlanner {
 public:
  MemoryPlanner() = default;
  MemoryPlanner(const Buffer& own, const Buffer& seen) : own_memory_(own), seen_memory_(seen) {}
  /// Aligned to a cache line. Empty if it only counts.
  Buffer take(std::size_t floats, bool seen_by_peers);
  std::size_t own() const { return own_; }
  std::size_t seen() const { return seen_; }

 private:
  Buffer own_memory_ = no_floats, seen_memory_ = no_floats;
  std::size_t own_ = 0, seen_ = 0;  ///< floats taken
};

/// The weight that the last stage of a pipeline shares with the first: a softmax that is tied to an embedding. The
/// first stage owns the weight. Before a run it sends the weight to the last stage; after the last micro-batch's
/// backward pass the last stage sends its gradient, averaged over micro-batches, and the first adds it to its own. So
/// both stages compute with the same bits, whatever a strategy, a codec or an optimizer does with weights. Cost: a
/// message of `floats` each way in a pass, as for the sum of two copies' gradients (Megatron-LM's embedding group),
/// while the optimizer has its work and state only once. The weight travels while the pipeline fills. On other stages
/// and models nothing is shared: floats are 0, and no call does anything.
class TiedWeight {
 public:
  TiedWeight(const HeldLayers&, const Part&);

  std::size_t floats() const { return held_.tied_between_stages(); }
  /// Whether this is the last stage, which uses the first one's weight.
  bool uses() const { return !is_first_ && floats() > 0; }
  /// Floats in which the last stage sums the gradient over micro-batches.
  std::size_t summed_floats() const { return uses() && micro_batches_ > 1 ? floats() : 0; }
  /// Adds the messages of one pass, or of one forward pass alone.
  void count(PeerTraffic&, bool backward) const;

  /// Memory that peers see, for the weight and then for its gradient.
  std::array<Buffer, 2> take_memory(MemoryPlanner& from) const {
    return {from.take(floats(), true), from.take(floats(), true)};
  }
  void set_memory(const std::array<Buffer, 2>& memory) { weight_ = memory[0], gradient_ = memory[1]; }
  /// in_use: earlier submitted work may still read the weight that was received.
  void begin(Queue&, const Buffer& parameters, bool in_use);
  /// Waits until all messages have left.
  void end();

  /// For the last stage, after `await_weight`.
  const Buffer& weight() const { return weight_; }
  void await_weight();
  Buffer gradient_target(Queue&, std::size_t micro_batch);
  /// Must be called after the micro-batch's backward pass.
  void return_gradient(Queue&, std::size_t micro_batch);

  /// Clears the gradient on the first stage before a micro-batch's backward pass: its layer adds to what the last
  /// layer writes where both are on one stage.
  void clear(Queue&, const Buffer& gradients) const;
  /// Must be called before the last micro-batch is sent: then the answer overwrites nothing that is still read.
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
  /// first stage: the weight leaves and its gradient is expected; last stage: the other way round
  TransferPtr left_, expected_;
};

}  // namespace gradmeter::model
