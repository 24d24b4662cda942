// SPDX-License-Identifier: Apache-2.0
// One layer of a network: its tensors, its costs, its forward and backward pass, and the parts of it that tensor ranks
// have.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "kernels/op.hpp"
#include "kernels/problems/problem.hpp"
#include "model/network/part.hpp"
#include "runtime/device.hpp"

namespace gradmeter::model {

/// The shape of one sample of a layer's input or output; memory is in the order of the fields, samples one after
/// another.
struct FeatureShape {
  std::size_t count = 0;
};
struct ImageShape {
  std::size_t channels = 0, height = 0, width = 0;
};
struct TokenShape {
  std::size_t steps = 0, features = 0;
};
using SampleShape = std::variant<FeatureShape, ImageShape, TokenShape>;
std::size_t elements(const SampleShape&);

/// tied: a language model's softmax shares the embedding's weight (Press & Wolf, EACL 2017).
enum class Weight : std::uint8_t { own, tied };

struct LayerTensor {
  std::string name;
  std::vector<std::size_t> shape;
  double bound = 0;  ///< initial values are uniform within centre ± bound
  double centre = 0;
  /// True where it is the first tensor of the network's first layer too, with the same shape and place. This layer
  /// writes the gradient and the first one adds to it; only then is the tensor ready.
  bool is_tied = false;
  WholePlace whole = {};  ///< place in the tensor of the whole layer; columns 0: it is that tensor
};
std::size_t elements(const LayerTensor&);

/// How the tensor ranks of a stage share a layer. Layers are cut in pairs: the first by outputs, the second by inputs,
/// so that the activations between them need no exchange. Of layers between the two, each rank has some features.
/// Source: Shoeybi et al., "Megatron-LM", 2019, section 3.
enum class Cut : std::uint8_t {
  outputs,  ///< each rank has some outputs; the gradients by the layer's input must be added
  inputs,   ///< each rank has some inputs; the partial sums of outputs must be added
  between,  ///< layers between two cut ones: each rank has some features, or heads, of input and output alike
  within    ///< layers that contain layers: input and output are whole on each rank, pairs of layers within are cut
};
/// The sums that a part of a layer needs over the ranks that share it: buffers in memory of its peers.
struct LayerSums {
  bool output = false, input_gradient = false;
  /// For the layers within it, in order: floats of a sample in each sum. Each sum has its own memory (`shared`).
  std::vector<std::size_t> forward = {}, backward = {};
};

/// The operands of a forward pass, in plain fp32 memory. Parameters and gradients are by tensor: lists that the caller
/// keeps until the call returns.
struct LayerForward {
  runtime::Queue& queue;
  kernels::BufferList<runtime::ConstBuffer> parameters;
  runtime::ConstBuffer input;
  runtime::Buffer output;
  Peers* peers = nullptr;  ///< the peers of a part, for its sums
  /// Buffers in memory of its peers, for the sums within the layer, those of forward first; each is long enough for the
  /// samples. The backward pass gets those of the forward pass.
  kernels::BufferList<runtime::Buffer> shared = {};
};
struct LayerBackward {
  runtime::Queue& queue;
  kernels::BufferList<runtime::ConstBuffer> parameters;
  runtime::ConstBuffer input, output;              ///< input and output of the forward pass
  runtime::Buffer output_gradient;                 ///< the layer may overwrite it
  runtime::Buffer input_gradient;                  ///< empty: nobody needs it
  kernels::BufferList<runtime::Buffer> gradients;  ///< overwritten
  std::function<void(std::size_t tensor)> ready;
  Peers* peers = nullptr;  ///< the peers of a part, for its sums
  kernels::BufferList<runtime::Buffer> shared = {};
};

struct LayerProblems {
  std::vector<kernels::Problem> forward, backward;
};

/// A layer for one number of samples, with the operations that it runs and their memory. It lives until its work is
/// done. A pass submits work that depends on its operands alone: a later pass on the same operands may submit that work
/// again without calling it (`RecordedPass`). A layer that is not a part asks the queue for no events.
class PreparedLayer {
 public:
  virtual ~PreparedLayer() = default;
  virtual void forward(const LayerForward&) = 0;
  /// Called after the forward pass of the same samples. Calls `ready` once for each tensor, in their order.
  virtual void backward(const LayerBackward&) = 0;
};

/// The least and greatest of the numbers seen, zero included.
struct ActivationRange {
  float least = 0, greatest = 0;
  void add(std::span<const float>);
};

/// A request to prepare a trained layer for forward passes alone.
struct InferenceRequest {
  std::size_t samples = 1;
  kernels::Precision precision = kernels::Precision::fp32;
  std::vector<runtime::ConstBuffer> parameters = {};  ///< by tensor, fp32; they stay as they are
  ActivationRange input = {};                         ///< range of the layer's inputs, for precisions of whole numbers
};
class InferenceLayer {
 public:
  virtual ~InferenceLayer() = default;
  /// Input and output are plain fp32 memory.
  virtual void forward(runtime::Queue&, const runtime::ConstBuffer& input, const runtime::Buffer& output) = 0;
  /// The backend's implementation of its products; empty: it has none.
  virtual std::string implementation() const { return {}; }
};

class Layer {
 public:
  virtual ~Layer() = default;
  virtual std::string name() const = 0;  ///< "conv:16x3x3"
  virtual SampleShape input() const = 0;
  virtual SampleShape output() const = 0;
  /// Its tensors, in the order in which their gradients become ready.
  virtual std::span<const LayerTensor> tensors() const = 0;
  /// The operations that a prepared layer runs; the limits and the FLOP of a step follow from them.
  virtual LayerProblems problems(std::size_t samples, bool input_gradient) const = 0;
  /// Activations and gradients of a sample that it holds besides its output and the buffers that it is given as
  /// `shared`.
  virtual std::size_t activation_elements() const { return 0; }
  /// Prepares for the calling thread's compute_threads() and queues of this device; `input_gradient`: backward computes
  /// the input's gradient too. Errors: UsageError or BackendError when no backend takes one of its operations.
  virtual std::unique_ptr<PreparedLayer> prepare(std::size_t samples, bool input_gradient, runtime::Device&) const = 0;
  /// The part that one of `ranks` tensor ranks holds; null: the layer has no such cut. Shapes, tensors and costs are
  /// the part's. To run the part, the width that is cut must be a multiple of `ranks`. Errors: UsageError where it can
  /// be cut, but not evenly.
  virtual std::unique_ptr<Layer> part(Cut, std::size_t rank, std::size_t ranks) const {
    return (void)rank, (void)ranks, nullptr;
  }
  virtual LayerSums sums() const { return {}; }

  /// The reason why it has no inference in a precision; empty: it has. Without an override, a layer infers in fp32 as
  /// it trains, and in any other precision if it runs no operation.
  virtual std::string inference_refusal(kernels::Precision) const;
  /// Prepares as `prepare` does, and packs weights here, once. Errors: those of `prepare`.
  virtual std::unique_ptr<InferenceLayer> prepare_inference(const InferenceRequest&, runtime::Queue&) const;
};

/// The first reason why no backend takes one of these problems in this precision; empty: all are taken.
std::string backend_refusal(kernels::Precision, std::vector<kernels::Problem>);

/// Selects the layers that tensor ranks share: pairs of layers, a first that can be cut by outputs and a later one by
/// inputs, with only layers that can be cut `between` in between. Returns by layer one rank's part, or null if all
/// ranks have the whole layer. Errors: UsageError where ranks cannot share a pair's width, or its heads, evenly.
/// Source: Shoeybi et al., "Megatron-LM", 2019, section 3.
std::vector<std::unique_ptr<Layer>> cut_pairs(std::span<const Layer* const>, std::size_t rank, std::size_t ranks);

}  // namespace gradmeter::model
