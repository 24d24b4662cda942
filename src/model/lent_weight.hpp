// The weight that the last stage of a pipeline shares with the first: a softmax that is tied to an embedding.
#pragma once
#include "model/accumulate.hpp"
#include "model/network_part.hpp"

namespace gradmeter::model {

/// The weight is the first stage's. Before a run that stage sends it to the last one; after the last micro-batch's
/// backward pass the last stage sends the gradient by its use, averaged over micro-batches, and the first adds it to
/// its own. So both stages compute with the same bits, whatever a strategy, a codec or an optimizer does with weights.
/// Cost: a message of `floats` each way in a pass, which is what the sum of two copies' gradients takes (Megatron-LM's
/// embedding group), with the optimizer's work and state once. The weight travels while the pipeline fills.
/// On other stages and models nothing is lent: floats are 0, and no call does anything.
class LentWeight {
 public:
  LentWeight(const NetworkPart&, const Part&);

  std::size_t floats() const { return part_.lent_between_stages(); }
  /// On the last stage.
  bool borrows() const { return !is_first_ && floats() > 0; }
  /// Of the gradient's sum over micro-batches, on the last stage.
  std::size_t summed_floats() const { return borrows() && micro_batches_ > 1 ? floats() : 0; }
  /// Adds those of one pass, or of one forward pass alone.
  void count(PeerTraffic&, bool backward) const;

  /// Of `floats` each, in memory that peers see.
  void set_memory(const Buffer& weight, const Buffer& gradient) { weight_ = weight, gradient_ = gradient; }
  /// in_use: work submitted before may still read the weight that was lent.
  void begin(Queue&, const Buffer& parameters, bool in_use);
  /// All messages have left.
  void end();

  /// The last stage: after `await_weight`.
  const Buffer& weight() const { return weight_; }
  void await_weight();
  Buffer gradient_target(Queue&, std::size_t micro_batch);
  /// After the micro-batch's backward pass.
  void return_gradient(Queue&, std::size_t micro_batch);

  /// The first stage: before a micro-batch's backward pass, since its layer adds to what the last one would have
  /// written.
  void clear(Queue&, const Buffer& gradients) const;
  /// Before the last micro-batch is sent: what answers it overwrites nothing that is still read.
  void expect_gradient();
  /// Before this tensor is announced.
  void add_gradient(Queue&, std::size_t tensor, const Buffer& gradients);

 private:
  bool lends() const { return is_first_ && floats() > 0; }
  Buffer of(const Buffer& flat) const;

  const NetworkPart& part_;
  Peers* peers_;
  bool is_first_;
  std::size_t micro_batches_;
  GradientSum sum_;
  Buffer weight_ = runtime::no_floats, gradient_ = runtime::no_floats;
  TransferPtr left_, expected_;  ///< of the weight and of its gradient; on the last stage the other way
};

}  // namespace gradmeter::model
