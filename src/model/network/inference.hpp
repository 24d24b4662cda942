// SPDX-License-Identifier: Apache-2.0
// Forward passes alone: of a trained network in another precision (quantized after training), and of a layer table.
#pragma once
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kernels/op.hpp"
#include "model/model.hpp"
#include "model/network/network.hpp"

namespace gradmeter::model {

/// The reason why the network has no inference in this precision: the first refusal of a layer
/// (`Layer::inference_refusal`), or that the precision is only a mode of a GPU's products. Empty: all layers have it.
std::string inference_refusal(const Network&, kernels::Precision);

/// Makes a forward pass of the batch, and widens the ranges, one for each layer, so that they include the layers'
/// inputs in this pass.
void calibrate(Network&, Queue&, Buffers, const Batch&, std::vector<ActivationRange>& ranges);

/// All layers, prepared for inference at one number of samples, for the calling thread's compute_threads() and the
/// queue's device. Numbers between layers are fp32. The parameters must not change.
/// Memory: weights in the backend's layouts, where it has its own, and the outputs of all layers.
/// Errors: UsageError or BackendError when a layer refuses the precision.
class Inference {
 public:
  /// ranges: those of each layer's inputs; needed in precisions of whole numbers.
  Inference(const Network&, const ConstBuffer& parameters, std::size_t samples, kernels::Precision,
            const std::vector<ActivationRange>& ranges, Queue&);

  /// inputs [samples × features] fp32. The returned logits [samples × outputs] are valid until the next pass.
  ConstBuffer run(Queue&, const ConstBuffer& inputs);
  /// The implementation of the layer with the most FLOP.
  const std::string& implementation() const { return implementation_; }
  /// The implementation of the first layer whose operation the device leaves to the host; empty: the device has kernels
  /// for all layers.
  const std::string& left_to_host() const { return left_to_host_; }

 private:
  std::vector<std::unique_ptr<InferenceLayer>> layers_;
  std::vector<runtime::OwnedBuffer> outputs_;
  std::string implementation_, left_to_host_;
};

/// The operations of a layer table's forward pass as inference runs them: in another precision, with weights in the
/// backend's own layouts where the backend takes such weights.
std::vector<RepeatedProblem> inference_problems(std::vector<RepeatedProblem>, kernels::Precision,
                                                const runtime::Device&);

/// Runs all operations one after another, each on random numbers. Weights are packed once, with a separate set for each
/// repetition. Operations read and write the layouts of their backend, so the time includes neither packing between
/// layers nor activation functions nor embeddings. It uses the calling thread's compute_threads(). Memory: all weights,
/// and the largest input and output. Errors: those of kernels::prepare; std::bad_alloc.
class ForwardOperations {
 public:
  ForwardOperations(std::span<const RepeatedProblem>, Queue&, std::uint64_t seed);
  void run(Queue&);
  /// The implementation of the operation with the most FLOP.
  const std::string& implementation() const { return implementation_; }
  /// The implementation of the first operation that the device leaves to the host; empty: none.
  const std::string& left_to_host() const { return left_to_host_; }

 private:
  struct Operation {
    std::unique_ptr<kernels::Op> op;
    std::vector<std::vector<ConstBuffer>> inputs = {};  ///< by repetition
    std::vector<Buffer> outputs = {};
  };
  /// Makes random weights for one input of the operation, packed if the operation wants that.
  runtime::OwnedBuffer weights(const kernels::Op&, std::size_t input, Queue&, std::uint64_t seed);
  /// Allocates the operations' activations, which they share.
  void share_activations(Queue&, std::uint64_t seed);

  std::vector<Operation> operations_;
  std::vector<runtime::OwnedBuffer> memory_;
  std::string implementation_, left_to_host_;
};

/// An estimate of the bytes that `ForwardOperations` allocates. parameters: number of all weights.
std::size_t forward_operations_bytes(std::span<const RepeatedProblem>, std::size_t parameters);

}  // namespace gradmeter::model
