// Gradient accumulation: a batch as k micro-batches, one after another, with the result of k ranks that take one each.
#pragma once
#include <memory>
#include <string>

#include "model/model.hpp"
#include "runtime/device.hpp"

namespace gradmeter::model {

/// Adds up the gradients of k micro-batches in their order and multiplies by 1/k once: the arithmetic of an averaging
/// all-reduce that sums in rank order, to the bit.
/// Cost: 12 bytes of traffic an element and micro-batch after the first; elements · 4 bytes of memory when k > 1.
class GradientSum {
 public:
  explicit GradientSum(std::size_t elements, std::size_t micro_batches)
      : elements_(micro_batches > 1 ? elements : 0), micro_batches_(micro_batches) {}
  std::size_t micro_batches() const { return micro_batches_; }
  /// Where micro-batch `i` writes its gradients; the last one's memory later holds the average.
  Buffer target(Queue&, std::size_t i, const Buffer& gradients);
  /// Takes in elements [offset, offset + count) of micro-batch `i`; of the last one, they become the average.
  void take(Queue&, std::size_t i, const Buffer& gradients, std::size_t offset, std::size_t count);

 private:
  std::size_t elements_, micro_batches_;
  runtime::OwnedBuffer sum_;  ///< allocated where the first target is asked for
};

/// Samples in each of `micro_batches` equal parts. Errors: UsageError when the batch does not divide.
std::size_t micro_batch_samples(std::size_t samples, std::size_t micro_batches);
/// Samples [first, first + count) of a batch whose inputs have `features` numbers.
Batch part_of(const Batch&, std::size_t features, std::size_t first, std::size_t count);

/// A model around another. A pass cuts the batch and announces tensors during the last micro-batch; a forward pass
/// alone is the inner model's, on the whole batch.
/// Memory: another set of gradients. Errors: UsageError for less than one micro-batch, and from `pass` when the batch
/// does not divide.
class Accumulate final : public Model {
 public:
  Accumulate(std::unique_ptr<Model> inner, std::size_t micro_batches);

  const std::string& name() const override { return inner_->name(); }
  std::span<const Tensor> tensors() const override { return inner_->tensors(); }
  std::size_t element_count() const override { return inner_->element_count(); }
  std::size_t input_features() const override { return inner_->input_features(); }
  std::size_t classes() const override { return inner_->classes(); }
  std::size_t labels() const override { return inner_->labels(); }
  bool learns() const override { return inner_->learns(); }
  std::string note() const override { return inner_->note(); }
  double step_flops(std::size_t samples) const override { return inner_->step_flops(samples); }
  std::vector<RepeatedProblem> pass_problems(std::size_t samples) const override;
  std::vector<RepeatedProblem> forward_problems(std::size_t n) const override { return inner_->forward_problems(n); }
  std::size_t workspace_bytes(std::size_t samples) const override;
  PeerNeeds peer_needs() const override { return inner_->peer_needs(); }
  PeerTraffic pass_traffic(std::size_t samples) const override;
  PeerTraffic forward_traffic(std::size_t samples) const override { return inner_->forward_traffic(samples); }

  void initialise(Queue& queue, Buffers b, std::uint64_t seed) const override { inner_->initialise(queue, b, seed); }
  void run_forward(Queue& queue, Buffers b, const Batch& batch, const OutcomePlace& outcome) override {
    inner_->run_forward(queue, b, batch, outcome);
  }
  void run_pass(Queue&, Buffers, const Batch&, const Ready&, const OutcomePlace&) override;

 private:
  std::unique_ptr<Model> inner_;
  GradientSum sum_;
};

}  // namespace gradmeter::model
