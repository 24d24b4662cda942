// The operations of a layer table's forward pass, as inference runs them.
#pragma once
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kernels/op.hpp"
#include "model/model.hpp"

namespace gradmeter::model {

/// The same in another precision, with weights in the backend's own layouts where it takes them.
std::vector<RepeatedProblem> inference_problems(std::vector<RepeatedProblem>, kernels::Precision,
                                                const runtime::Device&);

/// All operations one after another, each on random numbers. Weights, a set for each repetition, are packed once. What
/// an operation reads lies in the layout that its backend wants, and what it writes goes to no other: packing between
/// layers, activation functions and embeddings are not in its time. For the calling thread's compute_threads().
/// Memory: all weights, and the largest input and output. Errors: those of kernels::prepare; std::bad_alloc.
class ForwardOperations {
 public:
  ForwardOperations(std::span<const RepeatedProblem>, Queue&, std::uint64_t seed);
  void run(Queue&);
  /// Of the operation with the most FLOP.
  const std::string& implementation() const { return implementation_; }
  /// As model::Inference has it.
  const std::string& left_to_host() const { return left_to_host_; }

 private:
  struct Operation {
    std::unique_ptr<kernels::Op> op;
    std::vector<std::vector<ConstBuffer>> inputs = {};  ///< by repetition
    std::vector<Buffer> outputs = {};
  };
  runtime::OwnedBuffer weights(const kernels::Op&, std::size_t input, Queue&, std::uint64_t seed);
  void share_activations(Queue&, std::uint64_t seed);

  std::vector<Operation> operations_;
  std::vector<runtime::OwnedBuffer> memory_;
  std::string implementation_, left_to_host_;
};

/// Bytes that `ForwardOperations` will have, at most.
std::size_t forward_operations_bytes(std::span<const RepeatedProblem>, std::size_t parameters);

}  // namespace gradmeter::model
