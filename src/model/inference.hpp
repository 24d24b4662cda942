// A trained network for forward passes alone, in another precision: quantized after training.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "model/network.hpp"

namespace gradmeter::model {

struct InferenceOptions {
  std::size_t samples = 1;
  kernels::Precision precision = kernels::Precision::fp32;
  std::vector<ActivationRange> ranges = {};  ///< of each layer's inputs; whole numbers need them
};

/// Why a network is not inferred in a precision, of its first layer that is not; empty: it is.
std::string inference_refusal(const Network&, kernels::Precision);

/// Widens `ranges`, one for each layer, by what a forward pass of the batch gives the layers.
void calibrate(Network&, Queue&, Buffers, const Batch&, std::vector<ActivationRange>& ranges);

/// All layers prepared for inference at one number of samples, for the calling thread's compute_threads() and the
/// queue's device. Between layers numbers are fp32. The parameters must stay as they are.
/// Memory: weights in the layouts of the backend, where it has its own, and the outputs of all layers.
/// Errors: UsageError or BackendError when a layer refuses the precision.
class Inference {
 public:
  Inference(const Network&, const ConstBuffer& parameters, const InferenceOptions&, Queue&);

  /// inputs [samples × features] fp32. The logits [samples × outputs] hold until the next pass.
  ConstBuffer run(Queue&, const ConstBuffer& inputs);
  /// Of the layer with the most FLOP.
  const std::string& implementation() const { return implementation_; }
  /// Of the first layer whose operation the device leaves to the host; empty: it has kernels for all.
  const std::string& left_to_host() const { return left_to_host_; }

 private:
  std::vector<std::unique_ptr<InferenceLayer>> layers_;
  std::vector<runtime::OwnedBuffer> outputs_;
  std::string implementation_, left_to_host_;
};

}  // namespace gradmeter::model
